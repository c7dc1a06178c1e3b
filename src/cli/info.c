/* cli/info.c: gradus info: what this machine and this build are. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The processor's name, where the system tells it. */
static void print_processor(void)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0) {
            printf("processor        %s", colon + 2);
            break;
        }
    }
    if (file)
        fclose(file);
    printf("cores            %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
}

static void print_cache(const char *name, int which)
{
    long bytes = sysconf(which);
    if (bytes > 0)
        printf("%-16s %ld KiB\n", name, bytes / 1024);
}

static int print_all(void)
{
    gd_context *gd = gd_open("cpu");
    if (!gd)
        return cli_fail();
    printf("gradus           %s\n", gd_version());
    print_processor();
#ifdef _SC_LEVEL1_DCACHE_SIZE
    print_cache("cache 1 (data)", _SC_LEVEL1_DCACHE_SIZE);
    print_cache("cache 2", _SC_LEVEL2_CACHE_SIZE);
    print_cache("cache 3", _SC_LEVEL3_CACHE_SIZE);
#endif
    printf("instruction set  %s\n", gd_context_isa(gd));
    if (*gd_context_extensions(gd))
        printf("extensions       %s\n", gd_context_extensions(gd));
    printf("threads          %d\n", gd_context_threads(gd));
    gd_close(gd);

    printf("devices         ");
    for (int i = 0; i < gd_device_count(); i++)
        printf(" %s", gd_device_name(i));
    printf("\n");
    return CLI_OK;
}

int cli_info(int argc, char **argv)
{
    const cli_command_help help = {
        "gradus info", "Version, processor, instruction set, threads, caches and devices."
    };
    int code;
    if (cli_parse(argc, argv, &help, NULL, 0, &code))
        return code;
    return print_all();
}
