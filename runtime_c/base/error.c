/* error.c - the error record: filling it, status names, and its one-line text.
 * Text that is too long for a field is cut; a record is always NUL-terminated. */
#include "base/error.h"

#include "linnet_ext.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Makes a field one printable line that does not end inside a UTF-8 sequence. Names come from files, so they may
 * contain any bytes. */
static void tidy(char *field, size_t size) {
    size_t length = strlen(field), start = length;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)field[i] < 0x20 || field[i] == 0x7f) field[i] = '?';
    if (length + 1 < size) return;
    while (start > 0 && ((unsigned char)field[start - 1] & 0xc0) == 0x80) start--;
    if (start > 0 && (unsigned char)field[start - 1] >= 0xc0) {
        unsigned char lead = (unsigned char)field[start - 1];
        size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
        if (length - (start - 1) < whole) field[start - 1] = 0;
    }
}

static void put(char *field, size_t size, const char *format, va_list arguments) {
    vsnprintf(field, size, format, arguments);
    tidy(field, size);
}

static void copy_text(char *field, size_t size, const char *text) {
    snprintf(field, size, "%s", text ? text : "");
    tidy(field, size);
}

static linnet_status code_of(const linnet_error *error) {
    return error ? (linnet_status)error->code : LINNET_INVALID_ARGUMENT;
}

linnet_status ln_fail(linnet_error *error, linnet_status code, const char *what, ...) {
    va_list arguments;
    if (!error) return code;
    memset(error, 0, sizeof *error);
    error->code = code;
    error->op_index = -1;
    va_start(arguments, what);
    put(error->what, sizeof error->what, what, arguments);
    va_end(arguments);
    return code;
}

linnet_status linnet_error_begin(linnet_error *error, linnet_status code, const char *what) {
    return ln_fail(error, code, "%s", what ? what : "");
}

linnet_status linnet_error_add(linnet_error *error, linnet_error_part part, const char *text) {
    if (error) switch (part) {
        case LINNET_ERROR_AT: copy_text(error->tensor, sizeof error->tensor, text); break;
        case LINNET_ERROR_EXPECTED: copy_text(error->expected, sizeof error->expected, text); break;
        case LINNET_ERROR_GOT: copy_text(error->got, sizeof error->got, text); break;
        case LINNET_ERROR_HINT: copy_text(error->hint, sizeof error->hint, text); break;
        }
    return code_of(error);
}

linnet_status ln_null_argument(linnet_error *error, const char *function, const char *argument) {
    ln_fail(error, LINNET_INVALID_ARGUMENT, "%s: `%s` must not be NULL", function, argument);
    ln_got(error, "NULL");
    return LINNET_INVALID_ARGUMENT;
}

linnet_status ln_expected(linnet_error *error, const char *format, ...) {
    va_list arguments;
    if (error) {
        va_start(arguments, format);
        put(error->expected, sizeof error->expected, format, arguments);
        va_end(arguments);
    }
    return code_of(error);
}

linnet_status ln_got(linnet_error *error, const char *format, ...) {
    va_list arguments;
    if (error) {
        va_start(arguments, format);
        put(error->got, sizeof error->got, format, arguments);
        va_end(arguments);
    }
    return code_of(error);
}

linnet_status ln_hint(linnet_error *error, const char *format, ...) {
    va_list arguments;
    if (error) {
        va_start(arguments, format);
        put(error->hint, sizeof error->hint, format, arguments);
        va_end(arguments);
    }
    return code_of(error);
}

linnet_status ln_left_out(const char *what, const char *option, linnet_error *error) {
    ln_fail(error, LINNET_UNSUPPORTED, "%s is not in this build of liblinnet", what);
    ln_expected(error, "a library built with -D%s=ON", option);
    ln_hint(error, "build the library with this option, which is the default");
    return LINNET_UNSUPPORTED;
}

void ln_at_tensor(linnet_error *error, const char *name) {
    if (error) copy_text(error->tensor, sizeof error->tensor, name);
}

void ln_at_node(linnet_error *error, int32_t op_index, const char *name) {
    if (error) {
        error->op_index = op_index;
        copy_text(error->op, sizeof error->op, name);
    }
}

const char *ln_shape_text(const int64_t *dims, int rank, char *text, size_t size) {
    size_t used = 0;
    if (size == 0) return "";
    if (rank < 0) {
        copy_text(text, size, "unknown rank");
        return text;
    }
    text[0] = 0;
    for (int i = 0; i <= rank && used < size; i++) {
        int wrote;
        if (i == rank)
            wrote = snprintf(text + used, size - used, rank == 0 ? "[]" : "]");
        else if (dims[i] < 0)
            wrote = snprintf(text + used, size - used, i ? ", ?" : "[?");
        else
            wrote = snprintf(text + used, size - used, "%s%lld", i ? ", " : "[", (long long)dims[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return text;
}

const char *linnet_status_name(int status) {
    switch (status) {
    case LINNET_OK: return "ok";
    case LINNET_INVALID_ARGUMENT: return "invalid_argument";
    case LINNET_UNKNOWN_NAME: return "unknown_name";
    case LINNET_WRONG_DTYPE: return "wrong_dtype";
    case LINNET_WRONG_SHAPE: return "wrong_shape";
    case LINNET_MISSING_INPUT: return "missing_input";
    case LINNET_NOT_FOUND: return "not_found";
    case LINNET_READ_FAILED: return "read_failed";
    case LINNET_BAD_MAGIC: return "bad_magic";
    case LINNET_NEWER_FORMAT: return "newer_format";
    case LINNET_TRUNCATED: return "truncated";
    case LINNET_CORRUPT: return "corrupt";
    case LINNET_WRITE_FAILED: return "write_failed";
    case LINNET_OTHER_MODEL: return "other_model";
    case LINNET_UNSUPPORTED: return "unsupported";
    case LINNET_BAD_ATTRIBUTE: return "bad_attribute";
    case LINNET_SHAPE_MISMATCH: return "shape_mismatch";
    case LINNET_UNKNOWN_SHAPE: return "unknown_shape";
    case LINNET_INDEX_OUT_OF_RANGE: return "index_out_of_range";
    case LINNET_TOO_LARGE: return "too_large";
    case LINNET_USER_OP_FAILED: return "user_op_failed";
    case LINNET_OUT_OF_MEMORY: return "out_of_memory";
    case LINNET_ARENA_TOO_SMALL: return "arena_too_small";
    case LINNET_THREAD_FAILED: return "thread_failed";
    case LINNET_DEVICE_FAILED: return "device_failed";
    case LINNET_UNREACHABLE: return "unreachable";
    case LINNET_REFUSED: return "refused";
    case LINNET_TIMED_OUT: return "timed_out";
    case LINNET_PROTOCOL_ERROR: return "protocol_error";
    case LINNET_NOT_AUTHENTICATED: return "not_authenticated";
    case LINNET_SUPERSEDED: return "superseded";
    case LINNET_CONNECTION_LOST: return "connection_lost";
    case LINNET_JOB_OVER: return "job_over";
    case LINNET_CANCELLED: return "cancelled";
    case LINNET_DEADLINE_EXCEEDED: return "deadline_exceeded";
    default: return "unknown_status";
    }
}

size_t linnet_error_format(const linnet_error *error, char *text, size_t size) {
    char where[192] = "", ends[448] = "";
    size_t used = 0;
    int length;
    if (!error) return (size_t)snprintf(text, size, "no error record");
    if (error->code == LINNET_OK) return (size_t)snprintf(text, size, "ok");
    if (error->op[0] && error->op_index >= 0)
        used += (size_t)snprintf(where, sizeof where, "node %d '%s': ", (int)error->op_index, error->op);
    else if (error->op[0])
        used += (size_t)snprintf(where, sizeof where, "'%s': ", error->op);
    if (error->tensor[0]) snprintf(where + used, sizeof where - used, "'%s': ", error->tensor);
    used = 0;
    if (error->expected[0]) used += (size_t)snprintf(ends, sizeof ends, "; expected %s", error->expected);
    if (error->got[0])
        used += (size_t)snprintf(ends + used, sizeof ends - used, "%s got %s", used ? "," : ";", error->got);
    if (error->hint[0]) snprintf(ends + used, sizeof ends - used, "; %s", error->hint);
    length = snprintf(text, size, "%s: %s%s%s", linnet_status_name(error->code), where, error->what, ends);
    return length > 0 ? (size_t)length : 0;
}
