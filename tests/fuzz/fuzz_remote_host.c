/* fuzz_remote_host.c - sends commands to the core of a host, most of them valid and some changed, with valid and
 * changed pieces and recipes. The host must stay within its memory, answer every message, and give everything back when
 * a client leaves. usage: fuzz_remote_host COUNT SEED PIECE.lnt [FOLDER]. Build it with sanitizers, which end it with a
 * status if they find anything. */
#include "net/bytes.h"
#include "remote/batch.h"
#include "remote/host_client.h"
#include "remote/host_memory.h"
#include "remote/host_piece.h"
#include "remote/host_recipe.h"
#include "remote/host_work.h"

#include "mutate.h"

enum { MOST_BYTES = 8 << 20, IDS = 6, MESSAGES = 24, COMMANDS = 12, OPERANDS = 8, HOLES = 64, SEGMENT = 64 * 64 * 4 };

typedef struct fuzz_hole {
    size_t offset, bytes;
} fuzz_hole;

typedef struct fuzz {
    mutant m;
    ln_host host;
    host_client *client;
    host_connection connection, other; /* the client's, and another host's */
    size_t sizes[2 * OPERANDS];        /* of the inputs and then the outputs of the unchanged piece */
    int inputs, outputs;
    uint64_t number;                 /* of the last value that was sent */
    unsigned char digest[LN_SHA256]; /* of the piece that was sent last */
    fuzz_hole holes[HOLES];          /* of the recipe that was sent last */
    int hole_count, segment_count;
    size_t segments[2]; /* of SEGMENT bytes each: where the weights of the piece are */
    long answers, failures, prepared, found, filled, taken;
} fuzz;

static void fail(const fuzz *z, const char *what) {
    printf("fuzz_remote_host: %s; random state %llx\n", what, (unsigned long long)z->m.state);
    exit(4);
}

static size_t below(fuzz *z, size_t n) { return mutant_below(&z->m, n); }
static uint64_t any_id(fuzz *z) { return 1 + below(z, IDS); }

static uint64_t any_bytes(fuzz *z) {
    static const uint64_t few[] = {0, 1, 63, 64, 2048, 4096, 1 << 16, 1 << 20, UINT64_C(1) << 40, UINT64_MAX};
    return few[below(z, sizeof few / sizeof *few)];
}

static void add_prepare(fuzz *z, ln_remote_batch *batch) {
    const unsigned char *d = z->digest;
    const uint64_t numbers[8] = {any_id(z),     get64(d), get64(d + 8),        get64(d + 16),
                                 get64(d + 24), 0,        (uint64_t)z->inputs, (uint64_t)z->outputs};
    const int spans = z->inputs + z->outputs;
    unsigned char *at = ln_remote_add(batch, LN_REMOTE_PREPARE, numbers, 24 * (uint64_t)spans);
    if (at != NULL && below(z, 2)) put32(at - sizeof numbers - 4, LN_REMOTE_TRACED);
    for (int i = 0; at != NULL && i < spans; i++) {
        put64(at + 24 * i, below(z, 8) ? 1 + (uint64_t)i % IDS : any_id(z));
        put64(at + 24 * i + 8, below(z, 8) ? 0 : 64 * below(z, 64));
        put64(at + 24 * i + 16, below(z, 16) ? z->sizes[i] : any_bytes(z));
    }
}

static void add_send(fuzz *z, ln_remote_batch *batch) {
    static const uint64_t sizes[] = {0, 64, 4096, 8192};
    const uint64_t send[5] = {any_id(z), below(z, 8) ? ++z->number : below(z, 64), any_id(z), 0, sizes[below(z, 4)]};
    ln_remote_add(batch, LN_REMOTE_SEND, send, 0);
}

/* What another host asks for, often a value that was sent. */
static void add_take(fuzz *z, ln_remote_batch *batch) {
    const host_channel *channel = z->connection.channels;
    for (size_t n = below(z, IDS); n > 0 && channel != NULL; n--) channel = channel->next;
    const host_value *value = channel != NULL ? channel->values : NULL;
    const uint64_t take[4] = {below(z, 8) ? z->connection.number : any_id(z), channel != NULL ? channel->id : any_id(z),
                              value != NULL ? value->number : any_id(z),
                              value != NULL && below(z, 8) ? value->bytes : any_bytes(z)};
    ln_remote_add(batch, LN_REMOTE_TAKE, take, 0);
}

static void add_command(fuzz *z, ln_remote_batch *batch) {
    const uint64_t numbers[5] = {any_id(z), below(z, 4) ? 64 * below(z, 8) : any_bytes(z),
                                 below(z, 2) ? 64 * below(z, 32) : any_id(z), 64 * below(z, 8), 64 * below(z, 32)};
    const uint64_t two[2] = {numbers[0], below(z, 4) ? 4096 : any_bytes(z)};
    ln_remote_code code = (ln_remote_code)(1 + below(z, LN_REMOTE_CODES - 1));
    while (ln_remote_words[code] == 0 && code != LN_REMOTE_NOTHING && below(z, 64)) /* mostly one that there is */
        code = (ln_remote_code)(1 + below(z, LN_REMOTE_CODES - 1));
    switch (code) {
    case LN_REMOTE_PREPARE: add_prepare(z, batch); break;
    case LN_REMOTE_ALLOCATE: ln_remote_add(batch, code, two, 0); break;
    case LN_REMOTE_SEND: add_send(z, batch); break;
    case LN_REMOTE_FETCH: {
        const uint64_t fetch[7] = {any_id(z), 1, any_id(z), ++z->number, numbers[0], numbers[1], numbers[4]};
        ln_remote_add(batch, code, fetch, 0);
        break;
    }
    case LN_REMOTE_PEER: {
        static const char address[] = "unix:/nowhere/host";
        const uint64_t peer[4] = {any_id(z), 1, 2, below(z, sizeof address)};
        unsigned char *at = ln_remote_add(batch, code, peer, peer[3]);
        if (at != NULL) memcpy(at, address, (size_t)peer[3]);
        break;
    }
    case LN_REMOTE_UPLOAD: {
        const uint64_t upload[3] = {numbers[0], numbers[1], 8 * below(z, 64)};
        unsigned char *at = ln_remote_add(batch, code, upload, upload[2]);
        for (uint64_t i = 0; at != NULL && i < upload[2]; i++) at[i] = (unsigned char)mutant_next(&z->m);
        break;
    }
    case LN_REMOTE_PREDICT: {
        const size_t all = z->m.bytes != NULL ? z->m.size : 0, size = below(z, 4) ? all : below(z, all + 1);
        const uint64_t sketch[3] = {below(z, 4) ? all : any_bytes(z), below(z, 6), size};
        unsigned char *at = ln_remote_add(batch, code, sketch, size);
        if (at != NULL && size > 0) memcpy(at, z->m.bytes, size);
        break;
    }
    case LN_REMOTE_KEEP:
    case LN_REMOTE_RECALL: {
        const uint64_t kept[6] = {below(z, 2), 0,          below(z, 8) ? below(z, 4) : any_bytes(z),
                                  numbers[0],  numbers[1], below(z, 8) ? 4096 : numbers[4]};
        ln_remote_add(batch, code, kept, 0);
        break;
    }
    case LN_REMOTE_TIMES:
    case LN_REMOTE_STEPS: {
        const uint64_t times[3] = {any_id(z), below(z, 8) ? below(z, 4) : any_bytes(z),
                                   below(z, 8) ? below(z, 1025) : any_bytes(z)};
        ln_remote_add(batch, code, times, 0);
        break;
    }
    default: ln_remote_add(batch, code, numbers, 0);
    }
}

static unsigned char *lent(fuzz *z, const void *bytes, size_t size) {
    unsigned char *copy = z->host.allocator.alloc(z->host.allocator.context, size > 0 ? size : 1, 64);
    if (copy != NULL) memcpy(copy, bytes, size);
    return copy;
}

static void give(fuzz *z, void *bytes, size_t size) {
    z->host.allocator.free(z->host.allocator.context, bytes, size > 0 ? size : 1);
}

/* Gives the host a message, and looks at its answer. Returns whether nothing has failed. */
static bool answer(fuzz *z, host_connection *c, const unsigned char *bytes, size_t size) {
    c->work = lent(z, bytes, size);
    c->work_size = size;
    c->work_dropped = c->work == NULL;
    if (!c->joined) pthread_mutex_lock(&c->client->work);
    const bool answered = ln_host_work(c);
    if (!c->joined) pthread_mutex_unlock(&c->client->work);
    if (c->work != NULL) give(z, c->work, size);
    c->work = NULL;
    if (!answered) return false; /* no memory for an answer: the connection would end */
    const uint32_t status = get32(c->answer);
    if (c->answer_size < LN_REMOTE_ANSWER_BYTES || c->answer_size % 8 != 0) fail(z, "an answer of a wrong size");
    if (status != 0 && c->answer_size != LN_REMOTE_ANSWER_BYTES + LN_REMOTE_RECORD)
        fail(z, "a failure without a record");
    if (status != 0 && c->answer[LN_REMOTE_ANSWER_BYTES + 128] == 0) fail(z, "a failure without words");
    z->answers++;
    z->taken += c->joined && c->answer_size > LN_REMOTE_ANSWER_BYTES && status == 0;
    z->failures += status != 0;
    return status == 0;
}

static void send_piece(fuzz *z) {
    host_connection *c = &z->connection;
    const bool changed = below(z, 3) == 0;
    if (changed) {
        free(z->m.bytes);
        mutant_make(&z->m);
    }
    const unsigned char *bytes = changed ? z->m.bytes : z->m.file;
    const size_t size = changed ? z->m.size : z->m.file_size;
    ln_sha256(bytes, size, z->digest);
    if (c->piece != NULL) give(z, c->piece, c->piece_room);
    c->piece = lent(z, bytes, size);
    c->piece_size = size, c->piece_room = size > 0 ? size : 1;
    memcpy(c->piece_digest, z->digest, LN_SHA256);
}

/* A recipe of the piece, with holes anywhere, whose numbers are sometimes wrong. */
static size_t make_recipe(fuzz *z, unsigned char *to) {
    const unsigned char *file = z->m.file;
    const size_t size = z->m.file_size, most = size / LN_REMOTE_HOLE;
    size_t at = 0, count = 0, rest = LN_REMOTE_RECIPE_BYTES;
    z->hole_count = 0;
    for (; below(z, 2) && z->hole_count < z->segment_count; at = z->segments[z->hole_count++] + SEGMENT)
        z->holes[z->hole_count] = (fuzz_hole){z->segments[z->hole_count], SEGMENT};
    for (size_t n = below(z, most + 1); n > 0 && z->hole_count < HOLES; n--) {
        const size_t offset = at + 64 * below(z, 16), bytes = LN_REMOTE_HOLE + 64 * below(z, 64);
        if (offset + bytes > size) break;
        z->holes[z->hole_count++] = (fuzz_hole){offset, bytes};
        at = offset + bytes;
    }
    put64(to, size);
    put64(to + 8, (uint64_t)z->hole_count);
    ln_sha256(file, size, to + 16);
    for (int i = 0; i < z->hole_count; i++, rest += LN_REMOTE_HOLE_BYTES) {
        put64(to + rest, z->holes[i].offset);
        put64(to + rest + 8, z->holes[i].bytes);
        put64(to + rest + 16, linnet_crc32c(0, file + z->holes[i].offset, z->holes[i].bytes));
        ln_sha256(file + z->holes[i].offset, z->holes[i].bytes, to + rest + 24);
    }
    for (int i = 0; i <= z->hole_count; i++) {
        const size_t end = i < z->hole_count ? z->holes[i].offset : size;
        memcpy(to + rest, file + count, end - count);
        rest += end - count;
        if (i < z->hole_count) count = end + z->holes[i].bytes;
    }
    for (size_t n = below(z, 3) ? 0 : 1 + below(z, 3); n > 0; n--)
        to[below(z, LN_REMOTE_RECIPE_BYTES + LN_REMOTE_HOLE_BYTES * (size_t)z->hole_count)] ^=
            (unsigned char)(1 << below(z, 8));
    return below(z, 16) ? rest : below(z, rest + 1);
}

/* A file that the owner of the host has put into its folder, and that is damaged. */
static void put_file(fuzz *z) {
    char path[LN_HOST_PATH];
    free(z->m.bytes);
    mutant_make(&z->m);
    snprintf(path, sizeof path, "%s/owner.lnt", z->host.config.folder);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(z->m.bytes, 1, z->m.size, file) != z->m.size) fail(z, "the folder cannot be written");
    fclose(file);
}

/* Sends a recipe, and most of the constants that the host asks for. */
static void send_recipe(fuzz *z) {
    host_connection *c = &z->connection;
    if (z->host.config.folder != NULL && below(z, 4) == 0) put_file(z);
    unsigned char *recipe = malloc(LN_REMOTE_RECIPE_BYTES + LN_REMOTE_HOLE_BYTES * HOLES + z->m.file_size);
    if (recipe == NULL) fail(z, "no memory");
    const size_t size = make_recipe(z, recipe);
    c->work_type = LN_REMOTE_RECIPE;
    z->host.stopping = false; /* a host that is stopped looks for no constants */
    const bool fine = answer(z, c, recipe, size);
    c->work_type = LN_REMOTE_SUBMIT;
    z->host.stopping = true;
    free(recipe);
    if (fine && c->answer_size != LN_REMOTE_ANSWER_BYTES + ((size_t)c->recipe->count + 7) / 8 * 8)
        fail(z, "an answer without a byte for each hole");
    z->found += fine && c->recipe->lacking < c->recipe->count;
    for (int i = 0; fine && i < z->hole_count; i++)
        if (below(z, 32)) ln_host_recipe_constant(c, z->m.file + z->holes[i].offset, z->holes[i].bytes);
    ln_sha256(z->m.file, z->m.file_size, z->digest);
    z->filled += z->hole_count > 0 && c->recipe != NULL && c->recipe->lacking == 0;
}

static void submit(fuzz *z, host_connection *c, ln_remote_batch *batch) {
    size_t size = batch->size;
    if (size > 0 && below(z, 3) == 0)
        for (size_t n = 1 + below(z, 4); n > 0; n--) batch->bytes[below(z, size)] ^= (unsigned char)(1 << below(z, 8));
    if (below(z, 16) == 0) size = below(z, size + 1);
    answer(z, c, batch->bytes, size);
}

static void begin(fuzz *z) {
    static const unsigned char token[LN_REMOTE_TOKEN] = {1};
    z->connection = z->other = (host_connection){.host = &z->host};
    if (!ln_host_hello(&z->connection, token) || !ln_host_join(&z->other, token)) fail(z, "no memory");
    z->client = z->connection.client;
    z->number = 0;
}

static void end(fuzz *z, host_connection *c) {
    ln_host_leave(c);
    ln_host_recipe_free(c);
    if (c->piece != NULL) give(z, c->piece, c->piece_room);
    if (c->answer != NULL) z->host.allocator.free(z->host.allocator.context, c->answer, c->answer_room);
}

static void live(fuzz *z) {
    ln_remote_batch batch = {0};
    begin(z);
    for (int id = 1; id <= IDS; id++) {
        const uint64_t numbers[] = {(uint64_t)id, 8192};
        ln_remote_add(&batch, LN_REMOTE_ALLOCATE, numbers, 0);
    }
    for (int i = 0; i < MESSAGES; i++) {
        const bool other = below(z, 4) == 0;
        if (i % 8 == 0) (below(z, 2) ? send_recipe : send_piece)(z);
        for (size_t n = 1 + below(z, COMMANDS); n > 0 && !other; n--) add_command(z, &batch);
        if (other) add_take(z, &batch);
        submit(z, other ? &z->other : &z->connection, &batch);
        ln_remote_batch_clear(&batch);
        for (const host_piece *p = z->client->pieces; p != NULL; p = p->next) z->prepared++;
        if (z->host.used > MOST_BYTES) fail(z, "a host that lends more than it has");
    }
    const bool first = below(z, 2);
    end(z, first ? &z->other : &z->connection);
    end(z, first ? &z->connection : &z->other);
    ln_remote_batch_free(&batch);
    if (z->host.used != 0 || z->host.models != NULL || z->host.clients != NULL)
        fail(z, "memory that a client did not give back");
}

static void measure(fuzz *z) {
    linnet_model *model = NULL;
    linnet_error error = {0};
    linnet_tensor_info info;
    linnet_tensor_info_init(&info);
    if (linnet_model_open_memory(z->m.file, z->m.file_size, LINNET_COPY, NULL, &model, &error) != LINNET_OK)
        fail(z, error.what);
    z->inputs = linnet_model_input_count(model, 0), z->outputs = linnet_model_output_count(model, 0);
    if (z->inputs > OPERANDS || z->outputs > OPERANDS) fail(z, "a piece with too many operands");
    for (int i = 0; i < z->inputs; i++)
        if (linnet_model_get_input(model, 0, i, &info) == LINNET_OK) z->sizes[i] = info.bytes;
    for (int i = 0; i < z->outputs; i++)
        if (linnet_model_get_output(model, 0, i, &info) == LINNET_OK) z->sizes[z->inputs + i] = info.bytes;
    linnet_model_free(model);
    for (size_t at = 0; at + SEGMENT <= z->m.file_size && z->segment_count < 2;
         at += 256) { /* its CRC is in the tables */
        unsigned char checksum[4];
        put32(checksum, linnet_crc32c(0, z->m.file + at, SEGMENT));
        for (size_t i = MUTANT_HEADER; i < at; i++)
            if (memcmp(z->m.file + i, checksum, 4) == 0) {
                z->segments[z->segment_count++] = at;
                break;
            }
    }
    if (z->segment_count != 2) fail(z, "a piece without two constants");
}

int main(int argc, char **argv) {
    fuzz *z = calloc(1, sizeof *z);
    if (argc < 4 || argc > 5 || z == NULL) return 2;
    const long count = strtol(argv[1], NULL, 10);
    if (!mutant_load(&z->m, argv[3])) return 2;
    z->m.state = strtoull(argv[2], NULL, 10);
    z->host.config.max_bytes = MOST_BYTES;
    z->host.config.threads = 1;
    z->host.config.timeout = 5;
    z->host.config.folder = argc > 4 ? argv[4] : NULL;
    z->host.config.folder_bytes = MOST_BYTES;
    z->host.stopping = true; /* nothing waits for what will not come */
    z->host.allocator = ln_host_allocator(&z->host);
    pthread_mutex_init(&z->host.lock, NULL);
    measure(z);
    while (z->answers < count) live(z);
    printf("%ld answers, %ld failures, %ld pieces seen, %ld recipes filled, %ld found constants, %ld values taken\n",
           z->answers, z->failures, z->prepared, z->filled, z->found, z->taken);
    const bool dull = z->failures == 0 || z->failures == z->answers || z->prepared == 0 || z->found == 0 ||
                      z->filled == 0 || z->taken == 0;
    free(z->m.bytes);
    free(z->m.file);
    free(z);
    return dull ? 3 : 0;
}
