// The host of programs that Wasmtime translated, on Linux: memory, table, and the context that points to them. What
// depends on the image comes before this: `programs.rs` writes it.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

// `VMFuncRef`.
struct function_ref {
    unsigned long array_call, wasm_call, type_index, context;
};

// The addresses of the functions in the table, a unit of its own.
extern const unsigned long elements[];

static unsigned long context[16];
// The limit of the stack is 0, so that it is never reached.
static unsigned long store[32];
static unsigned long builtins[128];
// Every type is known by its own number.
static unsigned types[256];
static unsigned long table[TABLE_SIZE];
static struct function_ref functions[LENGTH(element)];
static unsigned char *memory;

// `memory.copy`, after the program checked the bounds.
static void copy(unsigned long *of, unsigned char *to, const unsigned char *from, size_t len) {
    (void)of;
    memmove(to, from, len);
}

// `memory.fill`, after the program checked the bounds.
static void fill(unsigned long *of, unsigned char *to, unsigned byte, size_t len) {
    (void)of;
    memset(to, (int)byte, len);
}

static void no_such_builtin(void) {
    fputs("a program calls a Wasmtime builtin that is not provided\n", stderr);
    abort();
}

static void set_up(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    memory = mmap(NULL, RESERVED_BYTES, PROT_NONE, flags, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, MEMORY_BYTES, PROT_READ | PROT_WRITE) != 0) {
        perror("no memory");
        exit(1);
    }
    for (size_t at = 0; at < LENGTH(builtins); at++)
        builtins[at] = (unsigned long)no_such_builtin;
    builtins[1] = (unsigned long)copy;
    builtins[2] = (unsigned long)fill;
    for (size_t at = 0; at < LENGTH(types); at++)
        types[at] = (unsigned)at;
    // The lowest bit says that an element is initialised. An element that no program calls is null, and a call of it
    // would trap.
    for (size_t at = 0; at < TABLE_SIZE; at++)
        table[at] = 1;
    for (size_t at = 0; at < LENGTH(element); at++) {
        functions[at].wasm_call = elements[at];
        functions[at].type_index = element[at].type;
        functions[at].context = (unsigned long)context;
        table[element[at].index] = (unsigned long)&functions[at] | 1;
    }
    context[STORE] = (unsigned long)store;
    context[BUILTINS] = (unsigned long)builtins;
    context[TYPES] = (unsigned long)types;
    context[MEMORY] = (unsigned long)memory;
    context[MEMORY_LEN] = MEMORY_BYTES;
    context[TABLE] = (unsigned long)table;
    context[TABLE_LEN] = TABLE_SIZE;
}

// Restores the state before a program ran.
static void reset(void) {
    context[STACK_POINTER] = STACK_START;
    memset(memory, 0, MEMORY_BYTES);
    const unsigned char *bytes = data_bytes;
    for (size_t at = 0; at < LENGTH(data); at++) {
        memcpy(memory + data[at].at, bytes, data[at].len);
        bytes += data[at].len;
    }
}

// A digest of what a program left behind. Each step can be undone, so one difference is always seen.
static unsigned long left_behind(void) {
    unsigned long digest = context[STACK_POINTER];
    const unsigned long *words = (const unsigned long *)memory;
    for (size_t at = 0; at < MEMORY_BYTES / sizeof *words; at++) {
        digest = (digest ^ words[at]) * 0x9e3779b97f4a7c15;
        digest ^= digest >> 32;
    }
    return digest;
}

int main(void) {
    set_up();
    for (size_t which = 0; which < LENGTH(program); which++) {
        for (size_t at = 0; at < LENGTH(amounts); at++) {
            reset();
            unsigned long result = program[which].run(context, amounts[at]);
            printf("%s %u %lu %016lx\n", program[which].name, amounts[at], result, left_behind());
        }
    }
}
