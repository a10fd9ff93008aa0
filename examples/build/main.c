/* Calls what the units export, and prints what it returns: `expected.txt`, merged or not. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TABLE(name)                                                            \
    int64_t name##_find(const void *, int64_t, uint32_t);                      \
    uint32_t name##_get(const void *, int64_t, int64_t);                       \
    uint32_t name##_check(const void *, int64_t);
TABLE(points)
TABLE(users)
TABLE(orders)
TABLE(events)
uint32_t users_may(const void *, uint32_t);
uint32_t checksum(uint32_t, const void *, int64_t);
int64_t missed(void);

/* A table as `instantiate` has it: COUNT records of SIZE bytes, with a key at OFFSET. */
#define COUNT 9
#define SHOW(name, size, offset)                                               \
    do {                                                                       \
        static uint32_t table[COUNT * (size) / 4];                             \
        for (uint32_t i = 0; i < COUNT; i++) {                                 \
            uint32_t *record = table + i * (size) / 4;                         \
            memset(record, (int)(i * 5 + (size)), (size));                     \
            record[(offset) / 4] = i * i * 3 + (size);                         \
        }                                                                      \
        printf(#name ": at %lld and %lld; %u, none: %u; %08x, empty: %x\n",    \
               (long long)name##_find(table, COUNT, 16 * 3 + (size)),          \
               (long long)name##_find(table, COUNT, 1),                        \
               name##_get(table, COUNT, 5), name##_get(table, COUNT, 12),      \
               name##_check(table, COUNT), name##_check(table, 0));            \
    } while (0)

int main(void) {
    SHOW(points, 12, 0);
    SHOW(users, 32, 8);
    SHOW(orders, 24, 0);
    SHOW(events, 16, 0);
    static const uint32_t user[8] = {0, 0, 0, 5};
    printf("may: %u %u %u\n", users_may(user, 0), users_may(user, 1), users_may(user, 2));
    for (uint32_t kind = 0; kind < 3; kind++)
        printf("checksum: %08x\n", checksum(kind, "123456789", 9));
    printf("missed: %lld\n", (long long)missed());
}
