/* gradus/options.h: how calls with options are written, in C and in C++. The rules are in
 * docs/api-rules.md.
 *
 * What a function needs are its arguments; what may be left out is a struct, handed over by
 * pointer. Beside the function stands a macro without "_with", which takes the members by name:
 *
 *     gd_optimizer *o = gd_adam(module, .lr = 1e-4, .beta1 = 0);
 *
 * What is not named has its default, and what is named has the value that was given, 0 included.
 * In C the macro writes the list of defaults in front of the caller's initializers, of which the
 * later one counts. Compilers warn of that (-Woverride-init), so this header switches the warning
 * off. In C++ the defaults stand in the struct, and members are named in the order in which it
 * declares them, as C++ demands; before C++20, gcc and clang know that form as an extension.
 */
#ifndef GRADUS_OPTIONS_H
#define GRADUS_OPTIONS_H

#include <gradus/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fill a struct of options, or another that begins with its size, with its defaults, by the name of
 * its type: gd_options_default("gd_adam_options", &options, sizeof options). For languages that
 * cannot use the lists of defaults. GD_ERR_INVALID: there is no such type. */
GD_API gd_status gd_options_default(const char *type, void *options, size_t size);

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus

/* So that a call does not warn of each member it leaves out (-Wmissing-field-initializers): gcc
 * looks at where the braces stand. What a caller writes is looked at as ever. */
#ifdef __GNUC__
#pragma GCC system_header
#endif

/* The default of a member that is not 0. */
#define GD_DEFAULT(...) = __VA_ARGS__

template <typename T> const T *gd_options_address(const T &options)
{
    return &options;
}

#define GD_WITH_0(f, type, defaults, ...) f(gd_options_address(__extension__ type{ __VA_ARGS__ }))
#define GD_WITH_1(f, type, defaults, a, ...) \
    f(a, gd_options_address(__extension__ type{ __VA_ARGS__ }))
#define GD_WITH_2(f, type, defaults, a, b, ...) \
    f(a, b, gd_options_address(__extension__ type{ __VA_ARGS__ }))
#define GD_WITH_3(f, type, defaults, a, b, c, ...) \
    f(a, b, c, gd_options_address(__extension__ type{ __VA_ARGS__ }))
#define GD_WITH_4(f, type, defaults, a, b, c, d, ...) \
    f(a, b, c, d, gd_options_address(__extension__ type{ __VA_ARGS__ }))
#define GD_WITH_5(f, type, defaults, a, b, c, d, e, ...) \
    f(a, b, c, d, e, gd_options_address(__extension__ type{ __VA_ARGS__ }))
#define GD_WITH_6(f, type, defaults, a, b, c, d, e, g, ...) \
    f(a, b, c, d, e, g, gd_options_address(__extension__ type{ __VA_ARGS__ }))

#else

#define GD_DEFAULT(...)

#if defined __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#elif defined __GNUC__
#pragma GCC diagnostic ignored "-Woverride-init"
#endif

/* #define gd_adam(...) GD_WITH_1(gd_adam_with, gd_adam_options, GD_ADAM_DEFAULTS, __VA_ARGS__, )
 * calls the function with one argument and the address of its options. The empty argument at the
 * end (not with GD_WITH_0) stands for the options when none is named. */
#define GD_WITH_0(f, type, defaults, ...)          f(&(type){ defaults, __VA_ARGS__ })
#define GD_WITH_1(f, type, defaults, a, ...)       f(a, &(type){ defaults, __VA_ARGS__ })
#define GD_WITH_2(f, type, defaults, a, b, ...)    f(a, b, &(type){ defaults, __VA_ARGS__ })
#define GD_WITH_3(f, type, defaults, a, b, c, ...) f(a, b, c, &(type){ defaults, __VA_ARGS__ })
#define GD_WITH_4(f, type, defaults, a, b, c, d, ...) \
    f(a, b, c, d, &(type){ defaults, __VA_ARGS__ })
#define GD_WITH_5(f, type, defaults, a, b, c, d, e, ...) \
    f(a, b, c, d, e, &(type){ defaults, __VA_ARGS__ })
#define GD_WITH_6(f, type, defaults, a, b, c, d, e, g, ...) \
    f(a, b, c, d, e, g, &(type){ defaults, __VA_ARGS__ })

#endif
#endif
