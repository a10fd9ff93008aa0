/* Uses the symbols that tables.clif exports, and checks contents and addresses. */
#include <stdint.h>
#include <string.h>

extern const int64_t squares[4], squares_too[4];
extern const char text[5], text_too[5];
extern int64_t count, count_too;
extern const struct { int64_t (*act)(int64_t); const int64_t *square; } actions;
int64_t next(int64_t), next_too(int64_t), act(int64_t), act_too(int64_t);

/* Hides from the compiler whether two names are one address. */
static int same(const void *volatile a, const void *volatile b) { return a == b; }

int main(void) {
    for (int64_t i = 0; i < 4; i++)
        if (squares[i] != i * i || squares_too[i] != i * i) return 1;
    if ((uintptr_t)squares % 8 || (uintptr_t)squares_too % 64) return 2;
    if (actions.act(21) != 42 || actions.square[1] != 4) return 3;
    if (act(3) != 15 || act_too(4) != 17) return 4;
    if (strcmp(text, "text") || strcmp(text_too, "text")) return 5;
    if (same(text, text_too)) return 6;
    if (next(5) != 5 || next_too(7) != 7 || next(5) != 10 || count != 10 || count_too != 7) return 7;
    if (same(&count, &count_too)) return 8;
#ifdef MERGED
    if (!same(squares, squares_too)) return 9;
    if (!same(squares + 1, actions.square)) return 10;
#else
    if (same(squares, squares_too)) return 11;
#endif
    return 0;
}
