/* system.c - reads what Linux tells about the machine that stays the same: its name, processor, cores and memory.
 * The variable LINNET_SYSTEM_ROOT names a folder to read instead of /, so that tests can describe other machines. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "system.h"

#include "values.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { MOST_KINDS = 8 };

const char *tool_system_root(void) {
    const char *folder = getenv("LINNET_SYSTEM_ROOT");
    return folder ? folder : "";
}

void tool_note_root(const char *tool) {
    const char *root = tool_system_root();
    if (*root)
        fprintf(stderr, "%s: note: LINNET_SYSTEM_ROOT is set, so the machine is the one that %s describes\n", tool,
                root);
}

/* Removes the space at the end. */
static void trim(char *text) {
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1])) text[--length] = 0;
}

static bool path_of(char *path, const char *format, va_list arguments) {
    const int start = snprintf(path, TOOL_PATH_ROOM, "%s", tool_system_root());
    if (start < 0 || start >= TOOL_PATH_ROOM) return false;
    const int length = vsnprintf(path + start, (size_t)(TOOL_PATH_ROOM - start), format, arguments);
    return length >= 0 && length < TOOL_PATH_ROOM - start;
}

FILE *tool_system_file(const char *path) {
    char whole[TOOL_PATH_ROOM];
    const int length = snprintf(whole, sizeof whole, "%s%s", tool_system_root(), path);
    return length > 0 && length < TOOL_PATH_ROOM ? fopen(whole, "r") : NULL;
}

bool tool_read_line(char text[TOOL_TEXT_ROOM], const char *format, ...) {
    char path[TOOL_PATH_ROOM];
    va_list arguments;
    va_start(arguments, format);
    const bool fits = path_of(path, format, arguments);
    va_end(arguments);
    FILE *file = fits ? fopen(path, "r") : NULL;
    if (!file) return false;
    const bool some = fgets(text, TOOL_TEXT_ROOM, file) != NULL;
    fclose(file);
    if (!some) return false;
    trim(text);
    return *text != 0;
}

bool tool_whole_number(const char *text, int base, long long *value) {
    char *end;
    *value = strtoll(text, &end, base);
    return end != text && !*end;
}

bool tool_next_field(FILE *file, char separator, char line[TOOL_TEXT_ROOM], const char **value) {
    while (fgets(line, TOOL_TEXT_ROOM, file)) {
        if (!strchr(line, '\n'))
            for (int c = getc(file); c != '\n' && c != EOF;) c = getc(file);
        char *middle = strchr(line, separator);
        if (!middle) continue;
        *middle++ = 0;
        while (isspace((unsigned char)*middle)) middle++;
        trim(line);
        trim(middle);
        *value = middle;
        return true;
    }
    return false;
}

/* Finds one field of a file, and copies its value. Returns false if the file does not have it. */
static bool find_field(const char *path, char separator, const char *key, char out[TOOL_TEXT_ROOM]) {
    FILE *file = tool_system_file(path);
    char line[TOOL_TEXT_ROOM];
    const char *value;
    bool found = false;
    while (file && !found && tool_next_field(file, separator, line, &value))
        if (!strcmp(line, key) && *value) {
            memmove(out, value, strlen(value) + 1);
            found = true;
        }
    if (file) fclose(file);
    return found;
}

/* Returns a field of "12 kB" in bytes, or -1. */
static long long kilobytes(const char *path, const char *key) {
    char text[TOOL_TEXT_ROOM], *end;
    if (!find_field(path, ':', key, text)) return -1;
    const long long value = strtoll(text, &end, 10);
    return end != text && !strcmp(end, " kB") && value >= 0 ? value * 1024 : -1;
}

long long tool_peak_rss(void) {
#if defined(__linux__)
    /* Not getrusage: its maximum includes the process that started this one. */
    return kilobytes("/proc/self/status", "VmHWM");
#else
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used)) return -1;
#if defined(__APPLE__)
    return (long long)used.ru_maxrss;
#else
    return (long long)used.ru_maxrss * 1024;
#endif
#endif
}

/* ---- the processor ------------------------------------------------------------------------------------------------
 */

/* What ARM's main ID register names: the implementer and the part. */
static const struct {
    unsigned implementer, part;
    const char *name;
} parts[] = {
    {0x41, 0xb76, "ARM1176"},         {0x41, 0xc05, "Cortex-A5"},       {0x41, 0xc07, "Cortex-A7"},
    {0x41, 0xc08, "Cortex-A8"},       {0x41, 0xc09, "Cortex-A9"},       {0x41, 0xc0e, "Cortex-A17"},
    {0x41, 0xc0f, "Cortex-A15"},      {0x41, 0xd03, "Cortex-A53"},      {0x41, 0xd04, "Cortex-A35"},
    {0x41, 0xd05, "Cortex-A55"},      {0x41, 0xd07, "Cortex-A57"},      {0x41, 0xd08, "Cortex-A72"},
    {0x41, 0xd09, "Cortex-A73"},      {0x41, 0xd0a, "Cortex-A75"},      {0x41, 0xd0b, "Cortex-A76"},
    {0x41, 0xd0c, "Neoverse-N1"},     {0x41, 0xd0d, "Cortex-A77"},      {0x41, 0xd40, "Neoverse-V1"},
    {0x41, 0xd41, "Cortex-A78"},      {0x41, 0xd42, "Cortex-A78AE"},    {0x41, 0xd44, "Cortex-X1"},
    {0x41, 0xd46, "Cortex-A510"},     {0x41, 0xd47, "Cortex-A710"},     {0x41, 0xd48, "Cortex-X2"},
    {0x41, 0xd49, "Neoverse-N2"},     {0x41, 0xd4b, "Cortex-A78C"},     {0x41, 0xd4d, "Cortex-A715"},
    {0x41, 0xd4e, "Cortex-X3"},       {0x41, 0xd4f, "Neoverse-V2"},     {0x41, 0xd80, "Cortex-A520"},
    {0x41, 0xd81, "Cortex-A720"},     {0x41, 0xd82, "Cortex-X4"},       {0x51, 0x800, "Kryo 2xx Gold"},
    {0x51, 0x801, "Kryo 2xx Silver"}, {0x51, 0x802, "Kryo 3xx Gold"},   {0x51, 0x803, "Kryo 3xx Silver"},
    {0x51, 0x804, "Kryo 4xx Gold"},   {0x51, 0x805, "Kryo 4xx Silver"}, {0xc0, 0xac3, "Ampere-1"},
};

typedef struct core_kind {
    unsigned implementer, part;
    int count;
} core_kind;

static void count_kind(core_kind kinds[MOST_KINDS], int *n, unsigned implementer, unsigned part) {
    for (int i = 0; i < *n; i++)
        if (kinds[i].implementer == implementer && kinds[i].part == part) {
            kinds[i].count++;
            return;
        }
    if (*n < MOST_KINDS) kinds[(*n)++] = (core_kind){implementer, part, 1};
}

/* Names the kinds of cores: "Cortex-A72", or "4x Cortex-A55, 4x Cortex-A76" if there are several. */
static void name_kinds(const core_kind *kinds, int n, char out[TOOL_TEXT_ROOM]) {
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < n && used < TOOL_TEXT_ROOM; i++) {
        char name[40], count[16] = "";
        snprintf(name, sizeof name, "implementer 0x%02x part 0x%03x", kinds[i].implementer, kinds[i].part);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (parts[k].implementer == kinds[i].implementer && parts[k].part == kinds[i].part)
                snprintf(name, sizeof name, "%s", parts[k].name);
        if (n > 1) snprintf(count, sizeof count, "%dx ", kinds[i].count);
        used += (size_t)snprintf(out + used, TOOL_TEXT_ROOM - used, "%s%s%s", i ? ", " : "", count, name);
    }
}

/* Names the processor: by ARM's identification registers, or else by the system's own text. */
static bool find_cpu(char out[TOOL_TEXT_ROOM]) {
    FILE *file = tool_system_file("/proc/cpuinfo");
    char line[TOOL_TEXT_ROOM], text[TOOL_TEXT_ROOM] = "";
    const char *value;
    long long implementer = -1, part;
    core_kind kinds[MOST_KINDS];
    int n = 0;
    while (file && tool_next_field(file, ':', line, &value)) {
        if (!strcmp(line, "model name") || !strcmp(line, "Hardware")) memmove(text, value, strlen(value) + 1);
        if (!strcmp(line, "CPU implementer") && !tool_whole_number(value, 16, &implementer)) implementer = -1;
        if (!strcmp(line, "CPU part") && implementer >= 0 && tool_whole_number(value, 16, &part))
            count_kind(kinds, &n, (unsigned)implementer, (unsigned)part);
    }
    if (file) fclose(file);
    if (n)
        name_kinds(kinds, n, out);
    else
        memcpy(out, text, sizeof text);
    return *out != 0;
}

/* Returns how many cores the process may use. */
static int count_cores(void) {
    char text[TOOL_TEXT_ROOM], *at = text;
    int count = 0;
    if (find_field("/proc/self/status", ':', "Cpus_allowed_list", text)) /* such as 0-3,6 */
        while (isdigit((unsigned char)*at)) {
            const long first = strtol(at, &at, 10), last = *at == '-' ? strtol(at + 1, &at, 10) : first;
            count += (int)(last - first + 1);
            at += *at == ',';
        }
    if (count <= 0) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? count : 1;
}

static void print_entry(const char *key, bool known, const char *text) {
    if (known)
        tool_json_entry(key, text);
    else
        printf("\"%s\": null", key);
    printf(", ");
}

void tool_print_machine(bool json) {
    char name[TOOL_TEXT_ROOM], cpu[TOOL_TEXT_ROOM];
    const bool named = tool_read_line(name, "/proc/device-tree/model") ||
                       find_field("/system/build.prop", '=', "ro.product.model", name);
    const bool known = find_cpu(cpu);
    const long long ram = kilobytes("/proc/meminfo", "MemTotal");
    const int cores = count_cores();
    struct utsname system;
    if (uname(&system) < 0) memset(&system, 0, sizeof system);
    if (json) {
        printf("{");
        print_entry("name", named, name);
        print_entry("cpu", known, cpu);
        printf("\"cores\": %d, \"ram\": ", cores);
        if (ram < 0)
            printf("null, \"system\": \"");
        else
            printf("%lld, \"system\": \"", ram);
        tool_json_characters(system.sysname, strlen(system.sysname));
        printf(" ");
        tool_json_characters(system.release, strlen(system.release));
        printf(" ");
        tool_json_characters(system.machine, strlen(system.machine));
        printf("\"}");
        return;
    }
    printf("machine %s%s%s, %d core%s, ", named ? name : "", named ? ", " : "", known ? cpu : "unknown processor",
           cores, cores == 1 ? "" : "s");
    if (ram >= 0) printf("%.1f GB, ", 1e-9 * (double)ram);
    printf("%s %s %s\n", system.sysname, system.release, system.machine);
}
