/* system_state.c - reads what changes while a tool runs: temperature, clock and throttling.
 * Times of a machine that grew hot or had too little power are those of a slower machine, so the tool warns. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "system_state.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the temperature of the hottest sensor of the processor, or of all sensors if none says that it is one. */
static double hottest(void) {
    char path[TOOL_PATH_ROOM], type[TOOL_TEXT_ROOM], text[TOOL_TEXT_ROOM];
    double cpu = -INFINITY, any = -INFINITY;
    const int length = snprintf(path, sizeof path, "%s/sys/class/thermal", tool_system_root());
    DIR *folder = length > 0 && length < TOOL_PATH_ROOM ? opendir(path) : NULL;
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        long long value;
        if (strncmp(entry->d_name, "thermal_zone", 12) != 0) continue;
        if (!tool_read_line(text, "/sys/class/thermal/%s/temp", entry->d_name) || !tool_whole_number(text, 10, &value))
            continue;
        /* Phones list voltages and charges as sensors too, and a sensor that is off says 0 or -274. */
        if (value <= 1000 || value >= 150000) continue;
        any = fmax(any, 1e-3 * (double)value);
        if (!tool_read_line(type, "/sys/class/thermal/%s/type", entry->d_name)) continue;
        for (char *c = type; *c; c++) *c = (char)tolower((unsigned char)*c);
        if (strstr(type, "cpu") || strstr(type, "soc")) cpu = fmax(cpu, 1e-3 * (double)value);
    }
    if (folder) closedir(folder);
    return isfinite(cpu) ? cpu : isfinite(any) ? any : (double)NAN;
}

/* Reads one file of each core's clock, in kHz. Returns the number of cores, or 0 if no core has the file. */
static int read_clocks(int mhz[TOOL_MOST_CORES], const char *file) {
    char text[TOOL_TEXT_ROOM], path[TOOL_PATH_ROOM];
    int n = 0;
    bool some = false;
    for (; n < TOOL_MOST_CORES; n++) {
        long long value;
        const int length = snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d", tool_system_root(), n);
        if (length < 0 || length >= TOOL_PATH_ROOM || access(path, F_OK) != 0) break;
        const bool known = tool_read_line(text, "/sys/devices/system/cpu/cpu%d/cpufreq/%s", n, file) &&
                           tool_whole_number(text, 10, &value) && value > 0 && value < INT_MAX;
        mhz[n] = known ? (int)((value + 500) / 1000) : -1;
        some |= known;
    }
    return some ? n : 0;
}

/* Reads the clocks that /proc/cpuinfo lists, on systems without cpufreq. */
static int read_listed_clocks(int mhz[TOOL_MOST_CORES]) {
    FILE *file = tool_system_file("/proc/cpuinfo");
    char line[TOOL_TEXT_ROOM];
    const char *value;
    int n = 0;
    while (file && n < TOOL_MOST_CORES && tool_next_field(file, ':', line, &value)) {
        if (strcmp(line, "cpu MHz") != 0) continue;
        const double number = strtod(value, NULL);
        if (number > 0 && number < 1e6) mhz[n++] = (int)(number + 0.5);
    }
    if (file) fclose(file);
    return n;
}

static int fastest(const int *mhz, int n) {
    int most = -1;
    for (int i = 0; i < n; i++)
        if (mhz[i] > most) most = mhz[i];
    return most;
}

int tool_fastest_mhz(void) {
    int mhz[TOOL_MOST_CORES];
    return fastest(mhz, read_clocks(mhz, "scaling_cur_freq"));
}

void tool_state_read(tool_state *state) {
    char text[TOOL_TEXT_ROOM];
    long long bits;
    memset(state, 0, sizeof *state);
    state->celsius = hottest();
    state->n_mhz = read_clocks(state->mhz, "scaling_cur_freq");
    if (!state->n_mhz) state->n_mhz = read_listed_clocks(state->mhz);
    state->n_most = read_clocks(state->most, "cpuinfo_max_freq");
    state->throttled = -1;
    if (tool_read_line(text, "/sys/devices/platform/soc/soc:firmware/get_throttled") &&
        tool_whole_number(text, 16, &bits) && bits >= 0 && bits <= 0xfffff)
        state->throttled = (long)bits;
}

/* Says what the firmware reports: "now: under-voltage; since the start: frequency capped". */
static const char *throttled_text(long bits, char out[TOOL_TEXT_ROOM]) {
    static const char *const causes[] = {"under-voltage", "frequency capped", "throttled", "temperature limit"};
    const long now = bits & 15, before = bits >> 16 & 15 & ~now;
    size_t used = 0;
    out[0] = 0;
    for (int part = 0; part < 2; part++) {
        const char *mark = part ? used ? "; since the start: " : "since the start: " : "now: ";
        for (int i = 0; i < 4; i++) {
            if (!((part ? before : now) >> i & 1)) continue;
            used += (size_t)snprintf(out + used, TOOL_TEXT_ROOM - used, "%s%s", mark, causes[i]);
            mark = ", ";
        }
    }
    return out;
}

static void print_clocks(const char *key, const int *mhz, int n) {
    printf("\"%s\": [", key);
    for (int i = 0; i < n; i++) {
        printf("%s", i ? ", " : "");
        if (mhz[i] < 0)
            printf("null");
        else
            printf("%d", mhz[i]);
    }
    printf("], ");
}

/* Prints the clocks of neighbouring cores with the same highest clock together: "cores 0-3 at 1500 of 1800 MHz". */
static void print_clusters(const tool_state *s, const char *gap) {
    for (int i = 0, end; i < s->n_mhz; i = end) {
        const int most = i < s->n_most ? s->most[i] : -1;
        int low = -1, high = -1;
        for (end = i; end < s->n_mhz && (end < s->n_most ? s->most[end] : -1) == most; end++) {
            if (s->mhz[end] < 0) continue;
            if (low < 0 || s->mhz[end] < low) low = s->mhz[end];
            if (s->mhz[end] > high) high = s->mhz[end];
        }
        if (low < 0) continue;
        printf(end - i > 1 ? "%score%s %d-%d at " : "%score%s %d at ", gap, end - i > 1 ? "s" : "", i, end - 1);
        gap = ", ";
        if (low < high) printf("%d to ", low);
        printf("%d", high);
        if (most > 0) printf(" of %d", most);
        printf(" MHz");
    }
}

void tool_print_state(const char *word, const tool_state *s, bool json) {
    char text[TOOL_TEXT_ROOM];
    if (json) {
        printf("{\"celsius\": ");
        if (isnan(s->celsius))
            printf("null, ");
        else
            printf("%.1f, ", s->celsius);
        print_clocks("mhz", s->mhz, s->n_mhz);
        print_clocks("mhz_most", s->most, s->n_most);
        printf("\"throttled\": ");
        if (s->throttled < 0)
            printf("null}");
        else
            printf("\"%s\"}", throttled_text(s->throttled, text));
        return;
    }
    printf("%-8s", word);
    if (isnan(s->celsius))
        printf("unknown temperature");
    else
        printf("%.1f C", s->celsius);
    if (s->n_mhz)
        print_clusters(s, ", ");
    else
        printf(", unknown clock");
    if (s->throttled >= 0) printf(", %s", s->throttled ? throttled_text(s->throttled, text) : "not throttled");
    printf("\n");
}

void tool_warn_slow(const char *tool, const tool_state *before, int seen, const tool_state *after) {
    char text[TOOL_TEXT_ROOM];
    const int first = fastest(before->mhz, before->n_mhz), last = fastest(after->mhz, after->n_mhz);
    const int most = first > seen ? first : seen;
    if (after->throttled > 0)
        fprintf(stderr,
                "%s: warning: the machine was throttled (%s), so it can be faster than these times; check its power "
                "supply and its cooling\n",
                tool, throttled_text(after->throttled, text));
    if (last > 0 && last < 0.9 * most)
        fprintf(stderr,
                "%s: warning: the clock of the fastest core fell from %d to %d MHz, so times differ within the run; "
                "check the cooling, or measure again when the machine is cool\n",
                tool, most, last);
}
