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

/* What Linux tells of the caches of the first processor. sysconf is wrong on AMD's (base/cpu.c). */
static void print_caches(void)
{
    static const char *const leaf[] = { "level", "type", "size" };
    for (int index = 0;; index++) {
        char text[3][32] = { "", "", "" };
        for (int i = 0; i < 3; i++) {
            char name[96];
            snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
                     leaf[i]);
            FILE *file = fopen(name, "r");
            if (!file)
                return;
            if (fscanf(file, "%31s", text[i]) != 1)
                text[i][0] = '\0';
            fclose(file);
        }
        if (strcmp(text[1], "Instruction") != 0)
            printf("cache %s          %s\n", text[0], text[2]);
    }
}

static int print_all(void)
{
    gd_context *gd = gd_open("cpu");
    if (!gd)
        return cli_fail();
    printf("gradus           %s\n", gd_version());
    print_processor();
    print_caches();
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
