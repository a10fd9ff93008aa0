/* The host: runs the programs of a file, which were placed at addresses beforehand, and writes their outcomes. Everything
 * is 64-bit words in files, little-endian as the machines are.
 *
 * A trap arrives as a signal. The handler looks up the code of the instruction and continues at the handler of a `try_call`
 * that every invocation begins with. Exceptions are entered the same way, and go up the frame pointers. A signal that the
 * program did not cause ends the process. Nothing is sandboxed: a store through a wild pointer to mapped memory is
 * executed. */

#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

typedef uint64_t word;

/* Registers as compiled code numbers them: those of an interrupted thread. */
#ifdef __x86_64__
static const int numbers[] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                               REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
#define REGISTER(context, n) (*(word *)&(context)->uc_mcontext.gregs[numbers[n]])
#define PC(context) (*(word *)&(context)->uc_mcontext.gregs[REG_RIP])
#define SP(context) REGISTER(context, 4)
enum { FP = 5, FIRST_PAYLOAD = 0, SECOND_PAYLOAD = 2 };
#else
#define REGISTER(context, n) (*(word *)&(context)->uc_mcontext.regs[n])
#define PC(context) (*(word *)&(context)->uc_mcontext.pc)
#define SP(context) (*(word *)&(context)->uc_mcontext.sp)
enum { FP = 29, FIRST_PAYLOAD = 0, SECOND_PAYLOAD = 1 };
#endif

#ifdef __x86_64__
typedef unsigned char vector __attribute__((vector_size(16)));

/* Bytes of `a` by the indices in `b`, or zero where the highest bit of an index is set. */
static vector pshufb(vector a, vector b) {
    vector shuffled;
    for (int at = 0; at < 16; at++)
        shuffled[at] = b[at] & 0x80 ? 0 : a[b[at] & 15];
    return shuffled;
}
#endif

/* The functions of the runtime library that compiled code may call, in the order of `LIBRARY`. */
static void *const library[] = {
    ceilf, ceil, floorf, floor, truncf, trunc, nearbyintf, nearbyint, fmaf, fma, memcpy, memset, memmove, memcmp,
#ifdef __x86_64__
    pshufb,
#endif
};

/* A value of any type. */
struct slot {
    word low, high;
};

/* Of a stub; laid out by `batch.rs`. */
struct import {
    word space, index, throws, params, returns;
    word types[]; /* bits; 0 is an address, 64 may be one */
};

struct context {
    word handler, sp, fp;
};

enum end { RETURNED, TRAPPED, SIGNAL, UNCAUGHT, GAVE_UP };

enum handler { TAG, DEFAULT, CONTEXT_AT, CONTEXT_ELSEWHERE };

static const word *input;
static FILE *output;

static word next(void) {
    return *input++;
}

static const word *table(word *count, word width) {
    *count = next();
    const word *rows = input;
    input += *count * width;
    return rows;
}

static void put(word value) {
    if (fwrite(&value, sizeof value, 1, output) != 1)
        exit(3);
}

/* The image: everything but the memory. */
static word base, base_size, code_start, code_end, memory, memory_size, surroundings, surroundings_size;
static word traps_count, sites_count, frames_count;
static const word *traps, *sites, *handlers, *frames, *saves;

static char *stack_start;
enum { STACK_SIZE = 256 << 20, MAX_TRACE = 1 << 16 };

/* The invocation. */
static struct context context;
static int running, thrown, gave_up;
static word thrown_tag, payloads[2];
static word end_kind, end_value;
static word trace_count;
static word *trace, trace_size, trace_room;

static word mixed(word digest, word value) {
    value = (digest ^ value) * 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9;
    return value << 17 | value >> 47;
}

static struct slot import_result(const struct import *about, const struct slot *arguments, word index) {
    word digest = mixed(about->space, about->index);
    for (word at = 0; at < about->params; at++)
        digest = mixed(mixed(digest, arguments[at].low), arguments[at].high);
    word low = mixed(digest, 2 * index);
    if (low % 4 == 0)
        return (struct slot){ low, mixed(low, 1) };
    return (struct slot){ low >> 52, 0 };
}

static struct slot cut(struct slot value, word bits) {
    if (bits < 128)
        value.high &= bits > 64 ? ((word)1 << (bits - 64)) - 1 : 0;
    if (bits < 64)
        value.low &= ((word)1 << bits) - 1;
    return value;
}

static const struct slot some_address = { 0, 0xadd4e55e00000000 };

/* The observable part of a value of this width, or of an address. */
static struct slot seen(struct slot value, word bits) {
    if (bits == 0)
        return some_address;
    if (bits != 65)
        return cut(value, bits);
    word stack = (word)stack_start;
    value.high = 0;
    if (value.low >= memory && value.low < memory + memory_size)
        return (struct slot){ 1 + value.low - memory, some_address.high };
    if ((value.low >= base && value.low < base + base_size)
        || (value.low >= stack && value.low < stack + STACK_SIZE))
        return some_address;
    return value;
}

static void record(word value) {
    if (trace_size == trace_room) {
        trace_room = trace_room ? 2 * trace_room : 4096;
        trace = realloc(trace, trace_room * sizeof *trace);
        if (!trace)
            exit(4);
    }
    trace[trace_size++] = value;
}

static unsigned char imported(const struct import *about, struct slot *slots) {
    struct slot arguments[256];
    for (word at = 0; at < about->params; at++)
        arguments[at] = seen(slots[at], about->types[at]);
    for (word at = 0; at < about->returns; at++)
        slots[at] = import_result(about, arguments, at);
    if (about->throws) {
        thrown = 1;
        thrown_tag = about->index;
        for (word at = 0; at < 2; at++)
            payloads[at] = import_result(about, arguments, at).low;
    }
    if (trace_count >= MAX_TRACE) {
        thrown = gave_up = 1;
    } else {
        trace_count++;
        record(about->space);
        record(about->index);
        record(about->params);
        for (word at = 0; at < about->params; at++) {
            record(arguments[at].low);
            record(arguments[at].high);
        }
    }
    return thrown;
}

/* The row with this key in its first column. */
static const word *find(const word *rows, word count, word width, word key) {
    word low = 0, high = count;
    while (low < high) {
        word middle = (low + high) / 2;
        if (rows[middle * width] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && rows[low * width] == key ? rows + low * width : NULL;
}

static word at(word address) {
    return *(const word *)address;
}

static void end(ucontext_t *registers, enum end kind, word value) {
    end_kind = kind;
    end_value = value;
    PC(registers) = context.handler;
    SP(registers) = context.sp;
    REGISTER(registers, FP) = context.fp;
}

static void throw(ucontext_t *registers) {
    word pc = PC(registers), fp = REGISTER(registers, FP);
    for (;;) {
        for (word row = 0; row < frames_count; row++) {
            const word *frame = frames + 4 * row;
            if (frame[0] < pc && pc <= frame[1])
                for (const word *save = saves + 2 * frame[2]; save < saves + 2 * (frame[2] + frame[3]); save += 2)
                    REGISTER(registers, save[0]) = at(fp - save[1]);
        }
        pc = at(fp + 8);
        fp = at(fp);
        if (fp == context.fp) {
            end(registers, UNCAUGHT, thrown_tag);
            return;
        }
        const word *site = find(sites, sites_count, 4, pc);
        if (!site)
            continue;
        word sp = fp - site[1], payload[2] = { payloads[0], payloads[1] };
        for (word row = site[2]; row < site[2] + site[3]; row++) {
            const word *handler = handlers + 3 * row;
            switch ((enum handler)handler[0]) {
            case CONTEXT_AT:
                payload[1] ^= at(sp + handler[2]);
                continue;
            case CONTEXT_ELSEWHERE:
                continue;
            case TAG:
                if (handler[1] != thrown_tag)
                    continue;
            case DEFAULT:
                break;
            }
            REGISTER(registers, FIRST_PAYLOAD) = payload[0];
            REGISTER(registers, SECOND_PAYLOAD) = payload[1];
            REGISTER(registers, FP) = fp;
            SP(registers) = sp;
            PC(registers) = handler[2];
            return;
        }
    }
}

static void on_signal(int number, siginfo_t *info, void *opaque) {
    ucontext_t *registers = opaque;
    word pc = PC(registers), fault = (word)info->si_addr;
    word stack = (word)stack_start;
    int ours = pc >= base && pc < base + base_size;
    const word *trap;
    if (!running) {
        signal(number, SIG_DFL);
    } else if (ours && gave_up) {
        end(registers, GAVE_UP, 0);
    } else if (ours && thrown) {
        thrown = 0;
        throw(registers);
    } else if (ours && number == SIGSEGV && fault < stack && fault + (1 << 20) >= stack) {
        end(registers, GAVE_UP, 0);
    } else if ((trap = find(traps, traps_count, 2, pc))) {
        end(registers, TRAPPED, trap[1]);
    } else if ((pc >= code_start && pc < code_end)
               || ((number == SIGSEGV || number == SIGBUS || number == SIGILL) && fault == pc)) {
        end(registers, SIGNAL, number);
    } else {
        signal(number, SIG_DFL);
    }
}

static word random_word(word *state) {
    word z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void *map(word address, word size, int protection, int flags) {
    void *mapped = mmap((void *)address, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (mapped == MAP_FAILED || (address && (word)mapped != address))
        exit(5);
    return mapped;
}

/* The contents of the surroundings before an invocation. Half of the words point into the lower half, the others are small or
 * arbitrary; memory that functions receive a pointer to holds mostly pointers. The lower half of the address of the
 * surroundings is zero, so that half a pointer is a small offset as well. Where code from WebAssembly finds the lower end
 * of its stack, there is enough of it. */
static void surround(word seed) {
    word *words = (word *)surroundings;
    for (word n = 0; n < surroundings_size / 8; n++) {
        word random = random_word(&seed);
        word pointer = surroundings + (random >> 16) % (surroundings_size / 2) / 8 * 8;
        if (n < surroundings_size / 64 || random % 16 < 8)
            words[n] = pointer;
        else
            words[n] = random % 16 < 14 ? (random >> 8) % 200 : random;
    }
    *(word *)(surroundings + (uint32_t)words[1] + 24) = 0;
}

static word digest_of(word address, word size) {
    word digest = 0;
    for (const word *value = (word *)address; value < (word *)(address + size); value++)
        digest = mixed(digest, *value);
    return digest;
}

static void invoke(void) {
    word inner = next(), function = next(), seed = next(), fuel = next();
    word params = next(), returns, surrounded = 0;
    const word places[] = { 0, memory, surroundings };
    struct slot slots[256] = { 0 };
    for (word n = 0; n < params; n++) {
        word kind = next();
        slots[n].low = next() + places[kind];
        slots[n].high = next();
        surrounded |= kind == 2;
    }
    const word *types = table(&returns, 1);
    if (surrounded)
        surround(seed);
    word *words = (word *)memory;
    for (word n = 0; n < memory_size / 8; n++)
        words[n] = random_word(&seed);
    words[0] = fuel;
    thrown = gave_up = 0;
    trace_count = trace_size = 0;
    end_kind = RETURNED;
    typedef void outer(word, word, struct slot *, struct context *);
    running = 1;
    ((outer *)*(word *)base)(inner, function, slots, &context);
    running = 0;
    put(end_kind);
    put(end_value);
    if (end_kind == RETURNED)
        for (word n = 0; n < returns; n++) {
            struct slot result = seen(slots[n], types[n]);
            put(result.low);
            put(result.high);
        }
    put(trace_count);
    put(trace_size);
    for (word n = 0; n < trace_size; n++)
        put(trace[n]);
    put(digest_of(memory, memory_size) ^ (surrounded ? digest_of(surroundings, surroundings_size) : 0));
}

static void program(void) {
    code_start = next();
    code_end = next();
    mprotect((void *)base, base_size, PROT_READ | PROT_WRITE);
    for (int segment = 0; segment < 3; segment++) {
        char *address = (char *)next();
        word size = next();
        memcpy(address, input, size);
        __builtin___clear_cache(address, address + size);
        input += (size + 7) / 8;
    }
    ((word *)base)[1] = (word)imported;
    for (word n = 0; n < sizeof library / sizeof *library; n++)
        ((word *)base)[2 + n] = (word)library[n];
    mprotect((void *)base, base_size, PROT_READ | PROT_EXEC);
    word unused;
    traps = table(&traps_count, 2);
    sites = table(&sites_count, 4);
    handlers = table(&unused, 3);
    frames = table(&frames_count, 4);
    saves = table(&unused, 2);
    for (word count = next(); count; count--)
        invoke();
}

static void *run(void *unused) {
    stack_t alternate = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
    sigaltstack(&alternate, NULL);
    static const int signals[] = { SIGILL, SIGSEGV, SIGFPE, SIGBUS, SIGTRAP };
    for (int n = 0; n < 5; n++) {
        struct sigaction action = { .sa_sigaction = on_signal };
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(signals[n], &action, NULL);
    }
    for (word count = next(); count; count--)
        program();
    return unused;
}

int main(int count, char **arguments) {
    FILE *file = count == 3 ? fopen(arguments[1], "rb") : NULL;
    output = file ? fopen(arguments[2], "wb") : NULL;
    if (!output || fseek(file, 0, SEEK_END))
        return 2;
    long size = ftell(file);
    word *words = malloc(size);
    rewind(file);
    if (!words || fread(words, 1, size, file) != (size_t)size)
        return 2;
    input = words;
    base = next();
    base_size = next();
    memory = next();
    memory_size = next();
    surroundings = next();
    surroundings_size = next();
    map(base, base_size, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE | MAP_NORESERVE);
    map(surroundings, surroundings_size, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
    map(memory, memory_size, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);

    /* A stack with a guard below it. */
    stack_start = (char *)map(0, STACK_SIZE + (1 << 20), PROT_NONE, MAP_NORESERVE) + (1 << 20);
    mprotect(stack_start, STACK_SIZE, PROT_READ | PROT_WRITE);
    static ucontext_t here, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack_start;
    there.uc_stack.ss_size = STACK_SIZE;
    there.uc_link = &here;
    makecontext(&there, (void (*)(void))run, 1, NULL);
    if (swapcontext(&here, &there))
        return 6;
    return fclose(output) ? 3 : 0;
}
