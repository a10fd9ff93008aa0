/* Calls the functions of bisect.clif that are there, and ends with 1 if one of them returns something wrong. */

typedef long long i64;

#define UNARY(name) i64 name(i64) __attribute__((weak))
#define BINARY(name) i64 name(i64, i64) __attribute__((weak))

UNARY(integer_constant_a); UNARY(integer_constant_b);
UNARY(int_condition_a); UNARY(int_condition_b);
i64 access_offset_a(i64 *) __attribute__((weak));
i64 access_offset_b(i64 *) __attribute__((weak));
BINARY(operand_order_a); BINARY(operand_order_b);
UNARY(signedness_a); UNARY(signedness_b);
UNARY(branch_targets_a); UNARY(branch_targets_b);
BINARY(branch_arguments_a); BINARY(branch_arguments_b);
BINARY(slot_offset_a); BINARY(slot_offset_b);
i64 jump_table_a(int, i64) __attribute__((weak));
i64 jump_table_b(int, i64) __attribute__((weak));
double float_bits_a(double) __attribute__((weak));
double float_bits_b(double) __attribute__((weak));
UNARY(no_refinement_a); UNARY(no_refinement_b);
UNARY(alone);
UNARY(same_a); UNARY(same_b);
BINARY(a_same_a); BINARY(a_same_b);
UNARY(o_same_a); UNARY(o_same_b);

#define CHECK(name, result, ...) if (name && name(__VA_ARGS__) != (result)) return 1

int main(void) {
    i64 words[3] = {1, 20, 300};
    CHECK(integer_constant_a, 602, 2);
    CHECK(integer_constant_b, 604, 2);
    CHECK(int_condition_a, 9, 2);
    CHECK(int_condition_b, 8, 2);
    CHECK(access_offset_a, 21, words);
    CHECK(access_offset_b, 320, words);
    CHECK(operand_order_a, 3, 2, 5);
    CHECK(operand_order_b, -3, 2, 5);
    CHECK(signedness_a, -18, -16);
    CHECK(signedness_b, 2305843009213693934, -16);
    CHECK(branch_targets_a, 10, 2);
    CHECK(branch_targets_b, 6, 2);
    CHECK(branch_arguments_a, -1, 2, 3);
    CHECK(branch_arguments_b, 1, 2, 3);
    CHECK(slot_offset_a, 2, 2, 3);
    CHECK(slot_offset_b, 3, 2, 3);
    CHECK(jump_table_a, 24, 0, 3);
    CHECK(jump_table_b, 9, 0, 3);
    CHECK(float_bits_a, 9.0, -3.0 + 6.0);
    CHECK(float_bits_b, -9.0, -3.0 + 6.0);
    CHECK(no_refinement_a, 12, 2);
    CHECK(no_refinement_b, 448, 2);
    CHECK(alone, 224, 2);
    CHECK(same_a, 6, 2);
    CHECK(same_b, 6, 2);
    CHECK(a_same_a, 4, 2, 3);
    CHECK(a_same_b, 4, 2, 3);
    CHECK(o_same_a, 4, 2);
    CHECK(o_same_b, 4, 2);
    return 0;
}
