/* tests/fake_cuda/nvrtc.c: fake NVRTC: kernels compiled by the host's C++ compiler. See fake.h. */
#define _GNU_SOURCE
#include "fake.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* host.txt as text, made by cmake. */
extern const unsigned char fake_host_text[];
extern const size_t fake_host_text_size;

enum { COMPILATION_ERROR = 6, INTERNAL_ERROR = 11, OUT_OF_MEMORY = 1, INVALID_OPTION = 5 };

typedef struct program {
    char *text;
    char log[4096];
    char *image; /* fake_image and the library */
    size_t bytes;
} program;

static int call(void)
{
    return fake_cuda_call() ? OUT_OF_MEMORY : 0;
}

const char *nvrtcGetErrorString(int error)
{
    return error == COMPILATION_ERROR ? "NVRTC_ERROR_COMPILATION"
           : error == OUT_OF_MEMORY   ? "NVRTC_ERROR_OUT_OF_MEMORY"
           : error == INVALID_OPTION  ? "NVRTC_ERROR_INVALID_OPTION"
                                      : "NVRTC_ERROR_INTERNAL_ERROR";
}

/* The minor version stands for host.txt and the flags, for whoever keeps what was compiled. */
int nvrtcVersion(int *major, int *minor)
{
    const char *flags = getenv("FAKE_CUDA_FLAGS");
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < fake_host_text_size; i++)
        hash = (hash ^ fake_host_text[i]) * 16777619u;
    for (; flags && *flags; flags++)
        hash = (hash ^ (unsigned char)*flags) * 16777619u;
    *major = 13;
    *minor = 1000 + (int)(hash % 1000000);
    return 0;
}

static const int archs[] = { 75, 80, 86, 89, 90, 100, 120 };

int nvrtcGetNumSupportedArchs(int *count)
{
    *count = sizeof archs / sizeof *archs;
    return call();
}

int nvrtcGetSupportedArchs(int *out)
{
    memcpy(out, archs, sizeof archs);
    return call();
}

int nvrtcCreateProgram(program **out, const char *text, const char *name, int headers,
                       const char *const *texts, const char *const *names)
{
    (void)name, (void)headers, (void)texts, (void)names;
    const int error = call();
    if (error)
        return error;
    *out = calloc(1, sizeof **out);
    (*out)->text = strdup(text);
    fake_cuda_state()->programs++;
    return 0;
}

int nvrtcDestroyProgram(program **p)
{
    const int error = call();
    free((*p)->text);
    free((*p)->image);
    free(*p);
    *p = NULL;
    fake_cuda_state()->programs--;
    return error;
}

/* ---- compiling ---- */

/* FAKE_KERNEL(name) for each line KERNEL(name)(…, or for the line ENTRY(name)(…, of which the others are
 * functions. */
static void name_kernels(FILE *out, const char *text)
{
    const char *begin = strstr(text, "\nENTRY(") ? "\nENTRY(" : "\nKERNEL(";
    for (const char *c = text; (c = strstr(c, begin)); c++) {
        const char *name = c + strlen(begin);
        fprintf(out, "\nFAKE_KERNEL(%.*s)", (int)strcspn(name, ",)"), name);
    }
    fprintf(out, "\nextern \"C\" const int fake_has_barriers;\nconst int fake_has_barriers = %d;\n",
            strstr(text, "__syncthreads") != NULL);
    fprintf(out, "\nextern \"C\" const int fake_cluster;\nconst int fake_cluster = %s;\n",
            strstr(text, "__cluster_dims__(PLAN_BLOCKS") ? "PLAN_BLOCKS" : "1");
}

/* What real NVRTC needs to round as IEEE 754 says: the engine must have asked for it. */
static const char *const required[] = { "--fmad=false", "--ftz=false", "--prec-div=true",
                                        "--prec-sqrt=true" };

static int read_options(int count, const char *const *options, fake_image *image)
{
    size_t found = 0;
    for (int i = 0; i < count; i++) {
        for (size_t r = 0; r < sizeof required / sizeof *required; r++)
            found += strcmp(options[i], required[r]) == 0;
        image->is_machine_code |=
            sscanf(options[i], "--gpu-architecture=sm_%d", &image->architecture) == 1;
        (void)sscanf(options[i], "--gpu-architecture=compute_%d", &image->architecture);
    }
    bool is_known = false;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        is_known |= archs[i] == image->architecture;
    return found == sizeof required / sizeof *required && is_known ? 0 : INVALID_OPTION;
}

static void read_log(program *p, const char *path)
{
    FILE *file = fopen(path, "r");
    const size_t bytes = file ? fread(p->log, 1, sizeof p->log - 1, file) : 0;
    p->log[bytes] = '\0';
    if (file)
        fclose(file);
}

static int read_library(program *p, const char *path, fake_image image)
{
    struct stat s;
    FILE *file = stat(path, &s) == 0 ? fopen(path, "rb") : NULL;
    if (!file)
        return INTERNAL_ERROR;
    memcpy(image.magic, FAKE_IMAGE_MAGIC, sizeof FAKE_IMAGE_MAGIC);
    image.bytes = (uint64_t)s.st_size;
    p->bytes = sizeof image + (size_t)s.st_size;
    p->image = malloc(p->bytes);
    memcpy(p->image, &image, sizeof image);
    const bool is_read = fread(p->image + sizeof image, 1, image.bytes, file) == image.bytes;
    fclose(file);
    return is_read ? 0 : INTERNAL_ERROR;
}

static int compile(program *p, fake_image image)
{
    char folder[] = "/tmp/fake-nvrtc-XXXXXX", command[1024];
    const char *compiler = getenv("CXX"), *flags = getenv("FAKE_CUDA_FLAGS");
    if (!mkdtemp(folder))
        return INTERNAL_ERROR;
    snprintf(command, sizeof command, "%s/k.cc", folder);
    FILE *source = fopen(command, "w");
    const size_t mark = strlen("@N\n"); /* as cmake/EmbedText.cmake begins */
    fwrite(fake_host_text + mark, 1, fake_host_text_size - mark, source);
    fprintf(source, "\n#line 1 \"gradus.cu\"\n%s\n", p->text);
    name_kernels(source, p->text);
    fclose(source);
    snprintf(command, sizeof command,
             "%s -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -fno-math-errno -w -fPIC "
             "-fno-exceptions -shared %s -o %s/k.so %s/k.cc -lm >%s/log 2>&1",
             compiler && *compiler ? compiler : "c++", flags ? flags : "", folder, folder, folder);
    const int failed = system(command);
    snprintf(command, sizeof command, "%s/log", folder);
    read_log(p, command);
    snprintf(command, sizeof command, "%s/k.so", folder);
    const int error = failed ? COMPILATION_ERROR : read_library(p, command, image);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? error : INTERNAL_ERROR;
}

/* The text in a file of the folder, named by its hash, and an image whose kernels do nothing. */
static int keep_text(program *p, const char *folder, fake_image image)
{
    char path[1024];
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = p->text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    snprintf(path, sizeof path, "%s/%016llx.cu", folder, (unsigned long long)hash);
    FILE *file = fopen(path, "w");
    if (!file || fputs(p->text, file) < 0 || fclose(file) != 0)
        return INTERNAL_ERROR;
    memcpy(image.magic, FAKE_IMAGE_MAGIC, sizeof FAKE_IMAGE_MAGIC);
    p->bytes = sizeof image;
    p->image = malloc(p->bytes);
    memcpy(p->image, &image, sizeof image);
    return 0;
}

int nvrtcCompileProgram(program *p, int count, const char *const *options)
{
    const char *texts = getenv("FAKE_CUDA_TEXTS");
    fake_image image = { .bytes = 0 };
    int error = call();
    if (error == 0)
        error = read_options(count, options, &image);
    fake_cuda_state()->compilations++;
    return error ? error : texts ? keep_text(p, texts, image) : compile(p, image);
}

int nvrtcGetProgramLogSize(program *p, size_t *bytes)
{
    *bytes = strlen(p->log) + 1;
    return call();
}

int nvrtcGetProgramLog(program *p, char *log)
{
    strcpy(log, p->log);
    return call();
}

static int get(const program *p, char *to, size_t *bytes, int is_machine_code)
{
    fake_image image;
    const int error = call();
    if (error)
        return error;
    if (!p->image)
        return INTERNAL_ERROR;
    memcpy(&image, p->image, sizeof image);
    if (image.is_machine_code != is_machine_code)
        return INTERNAL_ERROR;
    if (bytes)
        *bytes = p->bytes;
    if (to)
        memcpy(to, p->image, p->bytes);
    return 0;
}

int nvrtcGetCUBINSize(program *p, size_t *bytes)
{
    return get(p, NULL, bytes, 1);
}

int nvrtcGetCUBIN(program *p, char *to)
{
    return get(p, to, NULL, 1);
}

int nvrtcGetPTXSize(program *p, size_t *bytes)
{
    return get(p, NULL, bytes, 0);
}

int nvrtcGetPTX(program *p, char *to)
{
    return get(p, to, NULL, 0);
}
