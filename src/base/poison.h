/* base/poison.h: telling sanitizers what memory is for. gd_poison marks it as inaccessible, for the
 * address sanitizer; gd_forget says that what is in it has no meaning any more, so that
 * MemorySanitizer reports a use of it as it would of new memory. In other builds nothing happens. */
#ifndef GD_BASE_POISON_H
#define GD_BASE_POISON_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define GD_POISONING 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GD_POISONING 1
#elif __has_feature(memory_sanitizer)
#define GD_FORGETTING 1
#endif
#endif

/* For the one function that may look at such memory. */
#if defined(GD_POISONING)
#include <sanitizer/asan_interface.h>
#define GD_UNCHECKED __attribute__((no_sanitize_address, noinline))
#elif defined(GD_FORGETTING)
#include <sanitizer/msan_interface.h>
#define GD_UNCHECKED __attribute__((no_sanitize("memory"), noinline))
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

static inline void gd_forget(const volatile void *start, size_t bytes)
{
#ifdef GD_FORGETTING
    __msan_allocated_memory(start, bytes); /* origins name the caller */
#else
    (void)start;
    (void)bytes;
#endif
}

#endif
