// Programs that use zlib, in the manner of `../src`: each exported function takes the amount of work and returns a
// checksum of all of it. They import nothing, and free what they allocate.
//
// This is compiled twice, for two copies of zlib: see `../build.sh`. It is freestanding: what zlib and the compiler call
// of the standard library is at the end. It does *not* test zlib; but what is compressed is decompressed again, and a
// difference traps.

#include "zlib.h"

// `Z_PREFIX` renames what zlib defines, for the second copy.
#ifdef Z_PREFIX
#define NAME(name) other_##name
#else
#define NAME(name) name
#endif

#define EXPORT_AS(name) __attribute__((export_name(#name))) unsigned long long name(unsigned amount)
#define EXPORT_EXPANDED(name) EXPORT_AS(name)
#define EXPORT(name) EXPORT_EXPANDED(NAME(name))

typedef unsigned char byte;

enum {
    LARGEST = 32768,
    // More than anything takes that is made of so much.
    ROOM = LARGEST + 4096,
};

static byte data[LARGEST], packed[ROOM], unpacked[LARGEST];

static void check(int condition) {
    if (!condition)
        __builtin_trap();
}

// Numbers that look random.

static unsigned random_state;

static unsigned random_below(unsigned limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state % limit;
}

// What is compressed, of several kinds.

static void text(byte *to, unsigned len) {
    static const char *const words[] = {
        "call ", "return ", "block", "function ", "i32 ", "i64 ", "load ", "store ", "iadd ", "imul ", "jump ", "\n",
    };
    unsigned at = 0;
    while (at < len)
        for (const char *word = words[random_below(12)]; *word && at < len; word++)
            to[at++] = (byte)*word;
}

static void numbers(byte *to, unsigned len) {
    unsigned value = 0;
    for (unsigned at = 0; at < len; at++) {
        value += random_below(7);
        to[at] = (byte)(value >> (at % 3 * 4));
    }
}

static void runs(byte *to, unsigned len) {
    unsigned at = 0;
    while (at < len) {
        byte value = (byte)random_below(5);
        for (unsigned run = 1 + random_below(300); run > 0 && at < len; run--)
            to[at++] = value;
    }
}

static void noise(byte *to, unsigned len) {
    for (unsigned at = 0; at < len; at++)
        to[at] = (byte)random_below(256);
}

static void (*const kinds[])(byte *, unsigned) = {text, numbers, runs, noise};

enum { KINDS = sizeof kinds / sizeof *kinds };

// Fills `data` with `len` bytes of a kind.
static void generate(unsigned kind, unsigned len) {
    random_state = 0x9e3779b9 ^ (kind << 20) ^ len;
    kinds[kind](data, len);
}

// Memory for zlib: it is given back all at once, when nobody has any of it.

static byte heap[1 << 20] __attribute__((aligned(16)));
static unsigned heap_used, heap_users;

static voidpf allocate(voidpf opaque, uInt items, uInt size) {
    (void)opaque;
    unsigned len = (items * size + 15) & ~15u;
    check(len <= sizeof heap - heap_used);
    byte *taken = heap + heap_used;
    heap_used += len;
    heap_users++;
    return taken;
}

static void release(voidpf opaque, voidpf taken) {
    (void)opaque;
    (void)taken;
    if (--heap_users == 0)
        heap_used = 0;
}

static void open(z_stream *stream) {
    *stream = (z_stream){.zalloc = allocate, .zfree = release};
}

// What is added up.

static unsigned long long sum;

static void add(unsigned value) {
    sum = (sum ^ value) * 0x100000001b3;
    sum ^= sum >> 29;
}

// A way to compress.
struct way {
    int level, window, memory, strategy;
};

// Compresses, and gives back how many bytes it takes.
static unsigned deflated(struct way way, unsigned len) {
    z_stream stream;
    open(&stream);
    check(deflateInit2(&stream, way.level, Z_DEFLATED, way.window, way.memory, way.strategy) == Z_OK);
    stream.next_in = data;
    stream.avail_in = len;
    stream.next_out = packed;
    stream.avail_out = ROOM;
    check(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    unsigned total = (unsigned)stream.total_out;
    check(deflateEnd(&stream) == Z_OK);
    return total;
}

// Decompresses, compares, and adds up.
static void inflated(int window, unsigned packed_len, unsigned len) {
    z_stream stream;
    open(&stream);
    check(inflateInit2(&stream, window) == Z_OK);
    stream.next_in = packed;
    stream.avail_in = packed_len;
    stream.next_out = unpacked;
    stream.avail_out = LARGEST;
    check(inflate(&stream, Z_FINISH) == Z_STREAM_END);
    check(stream.total_out == len);
    add((unsigned)stream.adler);
    check(inflateEnd(&stream) == Z_OK);
    for (unsigned at = 0; at < len; at++)
        check(unpacked[at] == data[at]);
    add(packed_len);
    add((unsigned)crc32(0, packed, packed_len));
}

// Every level, for every kind of data.
EXPORT(levels) {
    sum = 1;
    for (unsigned round = 0; round < amount; round++)
        for (unsigned kind = 0; kind < KINDS; kind++) {
            unsigned len = 3000 + round * 1000 % 20000;
            generate(kind, len);
            for (int level = 0; level <= 9; level++)
                inflated(15, deflated((struct way){level, 15, 8, Z_DEFAULT_STRATEGY}, len), len);
        }
    return sum;
}

// Every strategy, with windows and tables of several sizes, and the three formats.
EXPORT(strategies) {
    static const int windows[] = {9, 12, 15, -9, -15, 16 + 10, 16 + 15};
    static const int strategies[] = {Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED};
    sum = 2;
    for (unsigned round = 0; round < amount; round++)
        for (unsigned at = 0; at < 5; at++)
            for (unsigned which = 0; which < 7; which++) {
                unsigned len = 2000 + round * 700 % 20000;
                generate((at + which) % KINDS, len);
                struct way way = {1 + (int)(which + at) % 9, windows[which], 1 + (int)which, strategies[at]};
                inflated(windows[which], deflated(way, len), len);
            }
    return sum;
}

// In pieces: flushed in all ways, with other parameters in between, from a copy of the state, with a dictionary.
EXPORT(streams) {
    static const int flushes[] = {Z_NO_FLUSH, Z_PARTIAL_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_BLOCK};
    sum = 3;
    for (unsigned round = 0; round < amount; round++)
        for (unsigned kind = 0; kind < KINDS; kind++) {
            unsigned len = 8000 + round * 900 % 16000;
            generate(kind, len);
            z_stream stream, copy;
            open(&stream);
            check(deflateInit(&stream, 1 + (int)kind * 2) == Z_OK);
            check(deflateSetDictionary(&stream, data, 500) == Z_OK);
            stream.next_in = data;
            stream.next_out = packed;
            stream.avail_out = ROOM;
            // `total_in` has the dictionary, too.
            for (unsigned piece = 0; stream.next_in < data + len; piece++) {
                unsigned left = (unsigned)(data + len - stream.next_in);
                stream.avail_in = left < 1111 ? left : 1111;
                check(deflate(&stream, flushes[piece % 5]) == Z_OK);
                if (piece % 4 == 2)
                    check(deflateParams(&stream, 9 - (int)piece % 9, Z_DEFAULT_STRATEGY) == Z_OK);
                if (piece == 3) {
                    check(deflateCopy(&copy, &stream) == Z_OK);
                    check(deflateEnd(&stream) == Z_DATA_ERROR);
                    // Back again: a state knows its stream.
                    check(deflateCopy(&stream, &copy) == Z_OK);
                    check(deflateEnd(&copy) == Z_DATA_ERROR);
                }
            }
            check(deflate(&stream, Z_FINISH) == Z_STREAM_END);
            unsigned total = (unsigned)stream.total_out;
            check(deflateEnd(&stream) == Z_OK);

            open(&stream);
            check(inflateInit(&stream) == Z_OK);
            stream.next_in = packed;
            stream.next_out = unpacked;
            int state = Z_OK;
            while (state != Z_STREAM_END) {
                stream.avail_in = total - (unsigned)stream.total_in;
                if (stream.avail_in > 77)
                    stream.avail_in = 77;
                stream.avail_out = LARGEST - (unsigned)stream.total_out;
                if (stream.avail_out > 1000)
                    stream.avail_out = 1000;
                state = inflate(&stream, Z_SYNC_FLUSH);
                if (state == Z_NEED_DICT) {
                    add((unsigned)stream.adler);
                    state = inflateSetDictionary(&stream, data, 500);
                }
                check(state == Z_OK || state == Z_STREAM_END);
            }
            check(stream.total_out == len);
            check(inflateEnd(&stream) == Z_OK);
            for (unsigned at = 0; at < len; at++)
                check(unpacked[at] == data[at]);
            add(total);
            add((unsigned)adler32(1, packed, total));
        }
    return sum;
}

// What `inflateBack` is called with.
struct ends {
    unsigned packed_left, unpacked_len;
};

static unsigned take(void *opaque, z_const byte **from) {
    struct ends *ends = opaque;
    *from = packed;
    unsigned len = ends->packed_left;
    ends->packed_left = 0;
    return len;
}

static int give(void *opaque, byte *from, unsigned len) {
    struct ends *ends = opaque;
    for (unsigned at = 0; at < len; at++)
        check(from[at] == data[ends->unpacked_len + at]);
    ends->unpacked_len += len;
    return 0;
}

// Decompressed by the interface that calls back; and damaged, which must give an error or other data.
EXPORT(callbacks) {
    static byte window[1 << 15];
    sum = 4;
    for (unsigned round = 0; round < amount; round++)
        for (unsigned kind = 0; kind < KINDS; kind++) {
            unsigned len = 5000 + round * 1100 % 16000;
            generate(kind, len);
            struct ends ends = {deflated((struct way){6, -15, 9, Z_DEFAULT_STRATEGY}, len), 0};
            add(ends.packed_left);
            z_stream stream;
            open(&stream);
            check(inflateBackInit(&stream, 15, window) == Z_OK);
            check(inflateBack(&stream, take, &ends, give, &ends) == Z_STREAM_END);
            check(inflateBackEnd(&stream) == Z_OK);
            check(ends.unpacked_len == len);

            unsigned total = deflated((struct way){6, 15, 8, Z_DEFAULT_STRATEGY}, len);
            for (unsigned damage = 0; damage < 12; damage++) {
                unsigned at = random_below(total);
                byte before = packed[at];
                packed[at] ^= (byte)(1 << random_below(8));
                open(&stream);
                check(inflateInit(&stream) == Z_OK);
                stream.next_in = packed;
                stream.avail_in = total;
                stream.next_out = unpacked;
                stream.avail_out = LARGEST;
                int state = inflate(&stream, Z_FINISH);
                check(state != Z_STREAM_END);
                add((unsigned)state);
                add((unsigned)stream.total_out);
                if (stream.msg)
                    for (const char *c = stream.msg; *c; c++)
                        add((byte)*c);
                add((unsigned)inflateSync(&stream));
                check(inflateEnd(&stream) == Z_OK);
                packed[at] = before;
            }
        }
    return sum;
}

// The checksums, of pieces and combined.
EXPORT(checksums) {
    sum = 5;
    for (unsigned round = 0; round < 4 * amount; round++) {
        generate(round % KINDS, LARGEST);
        unsigned cut = random_below(LARGEST);
        uLong crc = crc32(0, data, LARGEST), adler = adler32(1, data, LARGEST);
        uLong crcs[] = {crc32(0, data, cut), crc32(0, data + cut, LARGEST - cut)};
        uLong adlers[] = {adler32(1, data, cut), adler32(1, data + cut, LARGEST - cut)};
        z_off_t rest = (z_off_t)(LARGEST - cut);
        check(crc32_combine(crcs[0], crcs[1], rest) == crc);
        check(crc32_combine_op(crcs[0], crcs[1], crc32_combine_gen(rest)) == crc);
        check(adler32_combine(adlers[0], adlers[1], rest) == adler);
        add((unsigned)crc);
        add((unsigned)adler);
    }
    return sum;
}

#ifndef Z_PREFIX

// What zlib and the compiler need of the standard library.

void *memcpy(void *restrict to, const void *restrict from, __SIZE_TYPE__ len) {
    for (__SIZE_TYPE__ at = 0; at < len; at++)
        ((volatile byte *)to)[at] = ((const byte *)from)[at];
    return to;
}

void *memset(void *to, int value, __SIZE_TYPE__ len) {
    for (__SIZE_TYPE__ at = 0; at < len; at++)
        ((volatile byte *)to)[at] = (byte)value;
    return to;
}

#endif
