/* The smallest program on an installed Gradus: fails when the header and the library it runs with
 * are not of one version. */
#include <gradus/base.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    printf("gradus %s\n", gd_version());
    return strcmp(gd_version(), GD_VERSION_STRING) == 0 ? 0 : 1;
}
