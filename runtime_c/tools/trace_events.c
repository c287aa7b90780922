/* trace_events.c - writes events of a Chrome trace. */
#include "trace_events.h"

void trace_put_text(FILE *file, const char *key, const char *text) {
    fprintf(file, "\"%s\": \"", key);
    for (; text && *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') fputc('\\', file);
        if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

void trace_put_title(FILE *file, const char *what, int process, int track, const char *text) {
    fprintf(file, ",\n{\"name\": \"%s\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": {", what, process, track);
    trace_put_text(file, "name", text);
    fputs("}}", file);
}

void trace_put_span(FILE *file, const char *name, int process, int track, double begin, double length) {
    fputs(",\n{", file);
    trace_put_text(file, "name", name);
    fprintf(file, ", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {", process, track,
            begin, length);
}
