/* base/cpu.c: what this processor can do. Start at detect(), which asks it once.
 *
 * An instruction set counts only if the operating system saves its registers too (XGETBV), else the
 * first such instruction would kill the process.
 */
#include "base/cpu.h"
#include "base/error.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#endif

#if defined(__aarch64__) && defined(__linux__)
#define ON_ARM_LINUX 1
#include <sys/auxv.h>
#endif

#if defined(__x86_64__) || defined(__i386__)
#define ON_X86 1
#include <cpuid.h>
#include <sys/syscall.h>
#endif

static const char *const isa_names[GD_ISA_COUNT] = {
    [GD_ISA_BASELINE] = "baseline",
    [GD_ISA_AVX2] = "avx2",
    [GD_ISA_AVX512] = "avx512",
    [GD_ISA_NEON] = "neon",
};

/* Best first. */
static const gd_isa preference[] = { GD_ISA_AVX512, GD_ISA_AVX2, GD_ISA_NEON, GD_ISA_BASELINE };

static pthread_once_t detected = PTHREAD_ONCE_INIT;
static bool available[GD_ISA_COUNT];
static char model[49] = "unknown";

static pthread_once_t extensions_detected = PTHREAD_ONCE_INIT;
static bool extensions[GD_CPU_EXTENSION_COUNT];

#ifdef ON_X86

static bool has_bits(uint32_t value, uint32_t bits)
{
    return (value & bits) == bits;
}

/* The register sets the operating system saves: XCR0. Valid only when CPUID reports OSXSAVE. */
static uint32_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static void detect_isa(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 }; /* leaf 1, ecx */
    enum {
        AVX2 = 1 << 5,
        AVX512F = 1 << 16,
        AVX512DQ = 1 << 17,
        AVX512BW = 1 << 30
    };                                  /* leaf 7, ebx */
    const uint32_t avx512vl = 1u << 31; /* leaf 7, ebx */
    enum {
        XMM = 1 << 1,
        YMM = 1 << 2,
        OPMASK = 1 << 5,
        ZMM_LOW = 1 << 6,
        ZMM_HIGH = 1 << 7
    }; /* XCR0 */

    uint32_t eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !has_bits(ecx, OSXSAVE | AVX | FMA | F16C))
        return;
    uint32_t saved = saved_registers();
    if (!has_bits(saved, XMM | YMM) || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return;
    available[GD_ISA_AVX2] = has_bits(ebx, AVX2);
    available[GD_ISA_AVX512] = available[GD_ISA_AVX2] &&
                               has_bits(saved, OPMASK | ZMM_LOW | ZMM_HIGH) &&
                               has_bits(ebx, AVX512F | AVX512DQ | AVX512BW | avx512vl);
}

/* Linux saves the tiles' registers of those processes alone that have asked for it. */
static bool may_use_tiles(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

static void detect_extensions(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };        /* leaf 7, edx */
    enum { AVX512_BF16 = 1 << 5 };                          /* leaf 7, subleaf 1, eax */
    enum { AVX512_VNNI = 1 << 11 };                         /* leaf 7, ecx */
    enum { TILE_CONFIGURATION = 1 << 17, TILES = 1 << 18 }; /* XCR0 */
    uint32_t eax, ebx, ecx, edx;
    if (!gd_isa_available(GD_ISA_AVX512))
        return;
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
        extensions[GD_CPU_AVX512_BF16] = has_bits(eax, AVX512_BF16);
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return;
    extensions[GD_CPU_AVX512_VNNI] = has_bits(ecx, AVX512_VNNI);
    extensions[GD_CPU_AMX_BF16] = has_bits(edx, AMX_BF16 | AMX_TILE) &&
                                  has_bits(saved_registers(), TILE_CONFIGURATION | TILES) &&
                                  may_use_tiles();
}

/* Leaves 0x80000002 … 4 hold 48 bytes of text, padded with blanks. */
static void detect_model(void)
{
    char text[sizeof model] = { 0 };
    for (uint32_t part = 0; part < 3; part++) {
        uint32_t words[4];
        if (!__get_cpuid(0x80000002u + part, &words[0], &words[1], &words[2], &words[3]))
            return;
        memcpy(text + part * sizeof words, words, sizeof words);
    }
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        text[--length] = '\0';
    size_t blanks = strspn(text, " ");
    if (blanks < length)
        memcpy(model, text + blanks, length - blanks + 1);
}

#endif

/* What the library was built with kernels for: not every compiler knows the flags. */
static const bool isa_kernels[GD_ISA_COUNT] = {
    [GD_ISA_BASELINE] = true,
#ifdef GD_HAVE_AVX2
    [GD_ISA_AVX2] = true,
#endif
#ifdef GD_HAVE_AVX512
    [GD_ISA_AVX512] = true,
#endif
#ifdef GD_HAVE_NEON
    [GD_ISA_NEON] = true,
#endif
};

/* The same of extensions. */
static const bool extension_kernels[GD_CPU_EXTENSION_COUNT + 1] = {
#ifdef GD_HAVE_AVX512_BF16
    [GD_CPU_AVX512_BF16] = true,
#endif
#ifdef GD_HAVE_AMX_BF16
    [GD_CPU_AMX_BF16] = true,
#endif
#ifdef GD_HAVE_AVX512_VNNI
    [GD_CPU_AVX512_VNNI] = true,
#endif
#ifdef GD_HAVE_NEON_BF16
    [GD_CPU_NEON_BF16] = true,
#endif
#ifdef GD_HAVE_NEON_DOTPROD
    [GD_CPU_NEON_DOTPROD] = true,
#endif
    [GD_CPU_EXTENSION_COUNT] = false, /* C wants a value where there are no others */
};

static void detect(void)
{
    available[GD_ISA_BASELINE] = true;
#ifdef ON_X86
    detect_isa();
    detect_model();
#endif
#if defined(__aarch64__)
    available[GD_ISA_NEON] = true;
#endif
    for (int isa = 0; isa < GD_ISA_COUNT; isa++)
        available[isa] = available[isa] && isa_kernels[isa];
}

#ifdef ON_ARM_LINUX
/* A program cannot read the processor's registers that say it; Linux tells. */
static void detect_extensions(void)
{
    enum { DOTPROD = 1 << 20 }; /* AT_HWCAP */
    enum { BF16 = 1 << 14 };    /* AT_HWCAP2 */
    if (!gd_isa_available(GD_ISA_NEON))
        return;
    extensions[GD_CPU_NEON_BF16] = (getauxval(AT_HWCAP2) & BF16) != 0;
    extensions[GD_CPU_NEON_DOTPROD] = (getauxval(AT_HWCAP) & DOTPROD) != 0;
}
#elif !defined(ON_X86)
static void detect_extensions(void)
{
}
#endif

bool gd_cpu_has(gd_cpu_extension extension)
{
    pthread_once(&extensions_detected, detect_extensions);
    return extensions[extension] && extension_kernels[extension];
}

const char *gd_isa_name(gd_isa isa)
{
    return (unsigned)isa < GD_ISA_COUNT ? isa_names[isa] : "unknown";
}

/* The length of the next of the names that stand between plus signs. */
static size_t name_length(const char *names)
{
    return strcspn(names, "+");
}

static bool is_name(const char *names, const char *name)
{
    return name_length(names) == strlen(name) && strncmp(names, name, strlen(name)) == 0;
}

/* The instruction set that the next name is of, or GD_ISA_COUNT. */
static gd_isa isa_of(const char *names)
{
    int isa = 0;
    while (isa < GD_ISA_COUNT && !is_name(names, isa_names[isa]))
        isa++;
    return (gd_isa)isa;
}

gd_isa gd_isa_parse(const char *name)
{
    return strchr(name, '+') ? GD_ISA_COUNT : isa_of(name);
}

bool gd_isa_available(gd_isa isa)
{
    pthread_once(&detected, detect);
    return (unsigned)isa < GD_ISA_COUNT && available[isa];
}

static const struct {
    const char *name;
    gd_isa isa;
} extension_rows[GD_CPU_EXTENSION_COUNT] = {
    [GD_CPU_AVX512_BF16] = { "avx512_bf16", GD_ISA_AVX512 },
    [GD_CPU_AMX_BF16] = { "amx_bf16", GD_ISA_AVX512 },
    [GD_CPU_AVX512_VNNI] = { "avx512_vnni", GD_ISA_AVX512 },
    [GD_CPU_NEON_BF16] = { "neon_bf16", GD_ISA_NEON },
    [GD_CPU_NEON_DOTPROD] = { "neon_dotprod", GD_ISA_NEON },
};

const char *gd_cpu_extension_name(gd_cpu_extension extension)
{
    return extension_rows[extension].name;
}

/* What GRADUS_ISA says, names with plus signs between them; NULL: nothing. */
static const char *asked_isa(void)
{
    const char *asked = getenv("GRADUS_ISA");
    return asked && *asked ? asked : NULL;
}

/* Whether an extension is faster than doing without. VDPBF16PS is not on Intel's processors: on Emerald
 * Rapids it multiplies at half the rate of f32's multiply-adds. */
static bool pays(gd_cpu_extension extension)
{
    return extension != GD_CPU_AVX512_BF16 || !strstr(gd_cpu_model(), "Intel");
}

static const char *next_name(const char *names)
{
    const char *end = names + name_length(names);
    return *end ? end + 1 : NULL;
}

bool gd_cpu_may_use(gd_cpu_extension extension)
{
    const char *names = asked_isa();
    if (!gd_cpu_has(extension))
        return false;
    if (!names)
        return pays(extension);
    for (; names; names = next_name(names))
        if (is_name(names, extension_rows[extension].name))
            return true;
    return false;
}

/* The instruction set of the next name, and whether this processor runs what it names. */
static gd_isa parse_name(const char *names, bool *runs)
{
    for (int e = 0; e < GD_CPU_EXTENSION_COUNT; e++)
        if (is_name(names, extension_rows[e].name)) {
            *runs = gd_cpu_has((gd_cpu_extension)e);
            return extension_rows[e].isa;
        }
    const gd_isa isa = isa_of(names);
    *runs = gd_isa_available(isa);
    return isa;
}

/* The instruction set of all names, GD_ISA_COUNT if one is none or they are of several. */
static gd_isa parse_asked(const char *names, bool *runs)
{
    const gd_isa first = parse_name(names, runs);
    while ((names = next_name(names))) {
        bool next_runs;
        if (parse_name(names, &next_runs) != first)
            return GD_ISA_COUNT;
        *runs = *runs && next_runs;
    }
    return first;
}

gd_isa gd_isa_choose(void)
{
    const char *asked = asked_isa();
    if (asked) {
        bool runs;
        gd_isa isa = parse_asked(asked, &runs);
        if (isa == GD_ISA_COUNT) {
            gd_fail(
                GD_ERR_INVALID,
                "GRADUS_ISA=%s: not one of baseline, avx2, avx512, neon, nor, between plus signs, "
                "avx512 with any of amx_bf16, avx512_bf16, avx512_vnni, or neon with any of "
                "neon_bf16, neon_dotprod",
                asked);
        } else if (!runs) {
            gd_fail(GD_ERR_UNSUPPORTED,
                    "GRADUS_ISA=%s: this processor (%s) cannot run it, or this build has no "
                    "kernels for it",
                    asked, gd_cpu_model());
            isa = GD_ISA_COUNT;
        }
        return isa;
    }
    size_t best = 0; /* the last of the list, baseline, is always available */
    while (!gd_isa_available(preference[best]))
        best++;
    return preference[best];
}

/* Data caches of levels 1, 2, 3: at first a guess. */
static pthread_once_t caches_detected = PTHREAD_ONCE_INIT;
static size_t cache_bytes[] = { (size_t)32 << 10, (size_t)512 << 10, (size_t)8 << 20 };

#if defined(__linux__)
/* Reads one value that Linux tells of a cache of the first processor. */
static bool read_cache(int index, const char *leaf, const char *format, void *value)
{
    char name[96];
    snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, leaf);
    FILE *file = fopen(name, "re");
    const bool done = file && fscanf(file, format, value) == 1;
    if (file)
        fclose(file);
    return done;
}
#endif

static void detect_caches(void)
{
#ifdef _SC_LEVEL1_DCACHE_SIZE
    static const int name[] = { _SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                _SC_LEVEL3_CACHE_SIZE };
    for (int i = 0; i < 3; i++) {
        const long bytes = sysconf(name[i]);
        if (bytes > 0)
            cache_bytes[i] = (size_t)bytes;
    }
#endif
#if defined(__linux__)
    /* Of AMD's processors glibc 2.36 gives the third level of all cores together: 384 MB where
     * eight cores share 32 and no core reaches the rest. */
    int level;
    for (int index = 0; read_cache(index, "level", "%d", &level); index++) {
        char type[16];
        size_t kilobytes;
        if (level >= 1 && level <= 3 && read_cache(index, "type", "%15s", type) &&
            strcmp(type, "Instruction") != 0 && read_cache(index, "size", "%zuK", &kilobytes) &&
            kilobytes > 0)
            cache_bytes[level - 1] = kilobytes << 10;
    }
#endif
}

size_t gd_cache_bytes(int level)
{
    pthread_once(&caches_detected, detect_caches);
    return level >= 1 && level <= 3 ? cache_bytes[level - 1] : 0;
}

int gd_cpu_count(void)
{
#if defined(__linux__)
    cpu_set_t set; /* of 1024 processors; on a machine with more the call fails */
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

void gd_memory_of_machine(size_t *total, size_t *unused)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *total = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
    *unused = 0;
    FILE *file = fopen("/proc/meminfo", "r"); /* Linux */
    char line[128];
    while (file && fgets(line, sizeof line, file)) {
        static const char key[] = "MemAvailable:";
        if (strncmp(line, key, sizeof key - 1) == 0)
            *unused = (size_t)strtoull(line + sizeof key - 1, NULL, 10) * 1024;
    }
    if (file)
        fclose(file);
}

const char *gd_cpu_model(void)
{
    pthread_once(&detected, detect);
    return model;
}
