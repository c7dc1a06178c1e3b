/* base/poison.h: marking memory as inaccessible for the address sanitizer. In other builds nothing
 * happens. */
#ifndef GD_BASE_POISON_H
#define GD_BASE_POISON_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define GD_POISONING 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GD_POISONING 1
#endif
#endif

#ifdef GD_POISONING
#include <sanitizer/asan_interface.h>
/* For the one function that may look at poisoned memory. */
#define GD_UNCHECKED __attribute__((no_sanitize_address, noinline))
#else
#define GD_UNCHECKED
#endif

static inline void gd_poison(const volatile void *start, size_t bytes)
{
#ifdef GD_POISONING
    ASAN_POISON_MEMORY_REGION(start, bytes);
#else
    (void)start;
    (void)bytes;
#endif
}

static inline void gd_unpoison(const volatile void *start, size_t bytes)
{
#ifdef GD_POISONING
    ASAN_UNPOISON_MEMORY_REGION(start, bytes);
#else
    (void)start;
    (void)bytes;
#endif
}

#endif
