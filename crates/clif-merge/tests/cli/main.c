/* Calls the functions that mixed.clif exports, and checks results and addresses. */
#include <stdint.h>

int64_t both(int64_t), both_again(int64_t), next(int64_t), next_again(int64_t);
int64_t weak(int64_t), weak_again(int64_t), addresses(int64_t);
double floor_of(double);

int64_t table[1] = {40};

int64_t external(int64_t x) { return 3 * x + 1; }

int main(void) {
    if (both(3) != 156 || both_again(3) != 156) return 1;
    if (both == both_again) return 2;
    if (next(41) != 42 || next_again(41) != 42) return 3;
    if (weak(1) != 36 || weak_again(1) != 36) return 4;
    if (weak == weak_again) return 5;
    if (addresses(0) != 123) return 6;
    if (floor_of(2.5) != 2.0) return 7;
    if ((uintptr_t)both % 64 && (uintptr_t)both_again % 64) return 8;
    if ((uintptr_t)next_again % 128) return 9;
#ifdef MERGED
    if (next != next_again) return 10;
#endif
    return 0;
}
