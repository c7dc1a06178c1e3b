/* gradus/options.h: how calls with options are written, in C and in C++.
 *
 * A function with many options takes them as one struct. Beside it stands a macro of the function's
 * name, whose first arguments are members by position and whose others are named:
 *
 *     gd_tensor *y = gd_linear(m, "fc1", x, 16, .no_bias = true);
 *
 * What is not named is zero, which means the default. In C these are the initializers of a compound
 * literal. C++20 does not let positions and names be mixed, so there the macro names the first
 * members itself: exactly those by position that the examples in the headers show, and the others
 * by name, in the order in which the struct declares them, as C++ demands. Calls written that way
 * are the same in both languages, and in C++ before C++20 they compile with gcc and clang, which
 * know designated initializers as an extension.
 */
#ifndef GRADUS_OPTIONS_H
#define GRADUS_OPTIONS_H

#ifdef __cplusplus

/* So that a call does not warn of each member it leaves out (-Wmissing-field-initializers): gcc
 * looks at where the braces stand. What a caller writes is looked at as ever. */
#ifdef __GNUC__
#pragma GCC system_header
#endif

/* The comma at the end makes the named members a list that may be empty. */
#define GD_OPTIONS_0(type, ...)                (__extension__ type{ __VA_ARGS__ })
#define GD_OPTIONS_1(type, a, ...)             GD_OPTIONS_OF_1(type, a, __VA_ARGS__, )
#define GD_OPTIONS_2(type, a, b, ...)          GD_OPTIONS_OF_2(type, a, b, __VA_ARGS__, )
#define GD_OPTIONS_3(type, a, b, c, ...)       GD_OPTIONS_OF_3(type, a, b, c, __VA_ARGS__, )
#define GD_OPTIONS_4(type, a, b, c, d, ...)    GD_OPTIONS_OF_4(type, a, b, c, d, __VA_ARGS__, )
#define GD_OPTIONS_5(type, a, b, c, d, e, ...) GD_OPTIONS_OF_5(type, a, b, c, d, e, __VA_ARGS__, )

#define GD_OPTIONS_OF_1(type, a, A, ...)       (__extension__ type{ .a = A, __VA_ARGS__ })
#define GD_OPTIONS_OF_2(type, a, b, A, B, ...) (__extension__ type{ .a = A, .b = B, __VA_ARGS__ })
#define GD_OPTIONS_OF_3(type, a, b, c, A, B, C, ...) \
    (__extension__ type{ .a = A, .b = B, .c = C, __VA_ARGS__ })
#define GD_OPTIONS_OF_4(type, a, b, c, d, A, B, C, D, ...) \
    (__extension__ type{ .a = A, .b = B, .c = C, .d = D, __VA_ARGS__ })
#define GD_OPTIONS_OF_5(type, a, b, c, d, e, A, B, C, D, E, ...) \
    (__extension__ type{ .a = A, .b = B, .c = C, .d = D, .e = E, __VA_ARGS__ })

#else

/* Members by position follow the one that is named. */
#define GD_OPTIONS_0(type, ...)                ((type){ __VA_ARGS__ })
#define GD_OPTIONS_1(type, a, ...)             ((type){ .a = __VA_ARGS__ })
#define GD_OPTIONS_2(type, a, b, ...)          ((type){ .a = __VA_ARGS__ })
#define GD_OPTIONS_3(type, a, b, c, ...)       ((type){ .a = __VA_ARGS__ })
#define GD_OPTIONS_4(type, a, b, c, d, ...)    ((type){ .a = __VA_ARGS__ })
#define GD_OPTIONS_5(type, a, b, c, d, e, ...) ((type){ .a = __VA_ARGS__ })

#endif
#endif
