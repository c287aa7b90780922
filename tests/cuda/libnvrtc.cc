/* libnvrtc.cc - a stand-in for NVRTC: compiles the texts of kernels for the CPU with the machine's C++ compiler. What
 * it returns as a CUBIN is a shared library, which libcuda_*.cc loads. */
#include "standin.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <regex>
#include <set>
#include <spawn.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char **environ;

enum { OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, INTERNAL = 11 };

struct nvrtcProgram_st {
    std::string text, log, image;
    bool compiled = false;
};

namespace {
std::mutex lock;
std::set<nvrtcProgram> programs;
long long calls, fail_call;
int fail_code;

/* Counts a call. True: it is the one that has to fail. */
bool injected(int *code) {
    std::lock_guard<std::mutex> held(lock);
    *code = fail_code;
    return ++calls == fail_call;
}

nvrtcProgram known(nvrtcProgram program, const char *function) {
    std::lock_guard<std::mutex> held(lock);
    if (programs.count(program) != 0) return program;
    standin_nvrtc_wrong(function, "the program does not exist or has been destroyed");
    return nullptr;
}

std::string read_file(const std::string &path) {
    std::string out;
    char part[65536];
    FILE *file = fopen(path.c_str(), "rb");
    for (size_t n = 1; file != nullptr && n > 0;) {
        n = fread(part, 1, sizeof part, file);
        out.append(part, n);
    }
    if (file != nullptr) fclose(file);
    return out;
}

/* Others see the whole file or none. */
bool write_file(const std::string &path, const std::string &text) {
    const std::string own = path + "." + std::to_string(getpid());
    FILE *file = fopen(own.c_str(), "wb");
    if (file == nullptr) return false;
    bool good = fwrite(text.data(), 1, text.size(), file) == text.size();
    good = fclose(file) == 0 && good;
    if (good && rename(own.c_str(), path.c_str()) == 0) return true;
    unlink(own.c_str());
    return false;
}

std::string setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value != nullptr && *value != 0 ? value : otherwise;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Turns what only a GPU's compiler takes into C++: dynamic shared memory, pointers to shared memory, which nvcc accepts
 * with a warning, and the two instructions of linnet's prelude. */
std::string adapted(const std::string &text) {
    static const std::regex dynamic(
        "extern\\s+(?:__shared__|LG_LOCAL)\\s+(?:__align__\\(\\d+\\)\\s*|alignas\\(\\d+\\)\\s*)?"
        "((?:unsigned |signed )?[A-Za-z_]\\w*)\\s+(?:__align__\\(\\d+\\)\\s*)?([A-Za-z_]\\w*)\\s*"
        "\\[\\s*\\]\\s*;");
    static const std::regex pointer(
        "(?:__shared__|LG_LOCAL)\\s+((?:const\\s+)?[A-Za-z_]\\w*\\s*\\*\\s*[A-Za-z_]\\w*\\s*[,)])");
    static const std::regex widen("asm\\(\"cvt\\.f32\\.f16[^;]*;\"[^;]*\\(f\\)[^;]*\\((\\w)\\)\\);");
    static const std::regex narrow("asm\\(\"cvt\\.rn\\.f16\\.f32[^;]*;\"[^;]*\\(h\\)[^;]*\\((\\w)\\)\\);");
    std::string out = std::regex_replace(text, dynamic, "$1 *const $2 = ($1 *)lg_cpu_dynamic;");
    out = std::regex_replace(out, pointer, "$1");
    out = std::regex_replace(out, widen, "f = lg_cpu_f16_to_f32($1);");
    return std::regex_replace(out, narrow, "h = lg_cpu_f32_to_f16($1);");
}

/* The names of the kernels of a preprocessed text. */
std::vector<std::string> kernels_of(const std::string &text) {
    static const std::regex kernel(
        "__attribute__\\(\\(used, ?visibility\\(\"default\"\\)\\)\\)\\s*void\\s+(\\w+)\\s*\\(");
    std::vector<std::string> out;
    for (std::sregex_iterator at(text.begin(), text.end(), kernel), end; at != end; ++at) out.push_back((*at)[1]);
    return out;
}

/* Whether threads of a block wait for each other, by the words of CUDA or by functions of cpu_fibers.h. */
bool waits(const std::string &preprocessed) {
    static const std::regex words(
        "__sync(threads|warp)|__shfl_|__(ballot|any|all)_sync|lg_cpu_(?!f16_to_f32|f32_to_f16|dynamic)");
    return std::regex_search(preprocessed, words);
}

/* ---- the compiler ------------------------------------------------------------------------------------------------ */

/* Runs the compiler; its messages are appended to *log. */
bool compile(const std::vector<std::string> &arguments, const std::string &folder, std::string *log) {
    const std::string compiler = setting("CXX", "c++"), errors = folder + "/errors";
    std::string command = "exec " + compiler + " \"$@\" 2> '" + errors + "'";
    std::vector<char *> argv = {(char *)"sh", (char *)"-c", command.data(), (char *)"sh"};
    for (const std::string &argument : arguments) argv.push_back((char *)argument.c_str());
    argv.push_back(nullptr);
    pid_t child;
    int status = 1;
    if (posix_spawn(&child, "/bin/sh", nullptr, nullptr, argv.data(), environ) != 0) return false;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    *log += read_file(errors);
    return status == 0;
}

/* Arithmetic is that of a GPU, and a stack that overflows reaches its guard page. */
const char *const options[] = {"-shared",
                               "-fPIC",
                               "-fwrapv",
                               "-ffp-contract=off",
                               "-fno-strict-aliasing",
                               "-fno-math-errno",
                               "-fstack-clash-protection",
                               "-fno-exceptions",
                               "-fno-rtti",
                               "-fno-threadsafe-statics",
                               "-fvisibility=hidden"};
const char *const rules = "2"; /* of `adapted` and `build`: another number makes all images anew */

bool build(const std::string &text, const std::string &folder, std::string *library, std::string *log) {
    const std::string source = folder + "/linnet.cu", preprocessed = folder + "/whole.cc",
                      result = folder + "/image.so";
    if (!write_file(source, adapted(text))) return false;
    const std::vector<std::string> common = {"-x", "c++", "-std=c++17", "-w"};
    std::vector<std::string> arguments = common;
    for (const char *more : {"-E", "-P"}) arguments.push_back(more);
    arguments.insert(arguments.end(), {"-D__global__=__attribute__((used, visibility(\"default\")))", "-D__device__=",
                                       "-D__forceinline__=", "-D__shared__=", "-o", preprocessed, source});
    if (!compile(arguments, folder, log)) return false;
    const std::string whole = read_file(preprocessed);
    const std::vector<std::string> kernels = kernels_of(whole);
    if (kernels.empty()) {
        *log += "the text has no kernel\n";
        return false;
    }
    const bool fibers = waits(whole);
    std::string end = "\n#undef min\n#undef max\nstatic const lg_cpu_kernel lg_cpu_kernels[] = {\n";
    for (const std::string &kernel : kernels) end += "LG_CPU_KERNEL(" + kernel + ")\n";
    end +=
        "{nullptr, 0, nullptr, nullptr}};\nextern \"C\" __attribute__((visibility(\"default\"))) lg_cpu_image "
        "lg_cpu_image_of() {\n    return {lg_cpu_kernels, __start_lg_shared != nullptr ? (size_t)(__stop_lg_shared - "
        "__start_lg_shared) : 0, LG_CPU_FIBERS};\n}\n";
    if (!write_file(source, adapted(text) + end)) return false;
    arguments = common;
    arguments.insert(arguments.end(), options, std::end(options));
    arguments.insert(arguments.end(),
                     {setting("LINNET_STANDIN_OPTIMIZE", "-O1"), fibers ? "-DLG_CPU_FIBERS=1" : "-DLG_CPU_FIBERS=0",
                      "-include", STANDIN_FOLDER "/cuda_on_cpu.h", source, "-o", result, "-lm"});
    if (!compile(arguments, folder, log)) return false;
    *library = read_file(result);
    return !library->empty();
}

bool option_is_known(const char *option) {
    static const char *const known[] = {"--gpu-architecture=",
                                        "-arch=",
                                        "--fmad=",
                                        "-fmad=",
                                        "-default-device",
                                        "--device-as-default-execution-space",
                                        "--std=",
                                        "-std=",
                                        "--maxrregcount=",
                                        "-lineinfo",
                                        "--generate-line-info",
                                        "--define-macro=",
                                        "-D",
                                        "--ptxas-options="};
    for (const char *start : known)
        if (strncmp(option, start, strlen(start)) == 0) return true;
    return false;
}

/* The N of sm_N; 0: the options have none. */
unsigned compute_of(int count, const char *const *options) {
    for (int i = 0; i < count; ++i) {
        const char *value = strchr(options[i], '=');
        if (value != nullptr && strncmp(value, "=sm_", 4) == 0 && strstr(options[i], "arch") != nullptr)
            return (unsigned)atoi(value + 4);
    }
    return 0;
}

int make(nvrtcProgram program, unsigned compute) {
    std::string hashed = program->text + setting("CXX", "c++") + setting("LINNET_STANDIN_OPTIMIZE", "-O1") + rules;
    for (const char *option : options) hashed += option;
    for (const char *name : {"/cuda_on_cpu.h", "/cpu_fibers.h", "/image.h"})
        hashed += read_file(STANDIN_FOLDER + std::string(name));
    char key[40];
    snprintf(key, sizeof key, "%016llx%016llx", standin_hash(hashed.data(), hashed.size(), 1),
             standin_hash(hashed.data(), hashed.size(), 2));
    const std::string folder = setting("LINNET_STANDIN_CACHE", STANDIN_CACHE), kept = folder + "/" + key + ".so";
    std::string library = read_file(kept);
    if (library.empty()) {
        char temporary[] = "/tmp/linnet-standin-XXXXXX";
        mkdir(folder.c_str(), 0777);
        if (mkdtemp(temporary) == nullptr) return INTERNAL;
        const bool built = build(program->text, temporary, &library, &program->log);
        if (getenv("LINNET_STANDIN_KEEP") == nullptr) {
            for (const char *name : {"/linnet.cu", "/whole.cc", "/image.so", "/errors"})
                unlink((temporary + std::string(name)).c_str());
            rmdir(temporary);
        }
        if (!built) {
            fprintf(stderr, "stand-in: nvrtcCompileProgram: %.2000s\n", program->log.c_str());
            return COMPILATION;
        }
        write_file(kept, library);
    }
    lg_cpu_header header = {};
    memcpy(header.magic, LG_CPU_MAGIC, sizeof header.magic);
    header.size = library.size();
    header.hash = standin_hash(library.data(), library.size(), 1);
    header.compute = compute;
    program->image.assign((const char *)&header, sizeof header);
    program->image += library;
    return 0;
}
} // namespace

/* ---- the functions ----------------------------------------------------------------------------------------------- */

#define FUNCTION(name, symbol, parameters) extern "C" STANDIN_EXPORT int nvrtc_##name parameters __asm__(symbol);
LG_NVRTC_FUNCTIONS(FUNCTION)
#undef FUNCTION
#define INJECT()                                                                                                       \
    int injected_code;                                                                                                 \
    if (injected(&injected_code)) return injected_code

extern "C" STANDIN_EXPORT void standin_nvrtc_fail_at(long long k, int code) {
    std::lock_guard<std::mutex> held(lock);
    fail_call = k > 0 ? calls + k : 0;
    fail_code = code;
}
extern "C" STANDIN_EXPORT long long standin_nvrtc_calls() { return calls; }
/* Programs that have not been destroyed. */
extern "C" STANDIN_EXPORT int standin_nvrtc_programs() { return (int)programs.size(); }

int nvrtc_Version(int *major, int *minor) {
    INJECT();
    *major = 13, *minor = 0;
    return 0;
}

int nvrtc_CreateProgram(nvrtcProgram *out, const char *text, const char *, int n, const char *const *,
                        const char *const *) {
    INJECT();
    if (out == nullptr || text == nullptr || n != 0) return INVALID_INPUT;
    *out = new nvrtcProgram_st{text, "", ""};
    std::lock_guard<std::mutex> held(lock);
    programs.insert(*out);
    return 0;
}

int nvrtc_CompileProgram(nvrtcProgram program, int count, const char *const *given) {
    INJECT();
    if (known(program, "nvrtcCompileProgram") == nullptr) return INVALID_PROGRAM;
    const unsigned compute = compute_of(count, given);
    for (int i = 0; i < count; ++i)
        if (!option_is_known(given[i])) {
            program->log = std::string("unrecognized option ") + given[i];
            return INVALID_OPTION;
        }
    if (compute == 0) {
        program->log = "the options name no --gpu-architecture=sm_XY, so there is no CUBIN";
        return INVALID_OPTION;
    }
    program->log.clear();
    const int code = make(program, compute);
    program->compiled = code == 0;
    return code;
}

int nvrtc_DestroyProgram(nvrtcProgram *program) {
    INJECT();
    if (program == nullptr || known(*program, "nvrtcDestroyProgram") == nullptr) return INVALID_PROGRAM;
    std::lock_guard<std::mutex> held(lock);
    programs.erase(*program);
    delete *program;
    *program = nullptr;
    return 0;
}

int nvrtc_GetCUBINSize(nvrtcProgram program, size_t *size) {
    INJECT();
    if (known(program, "nvrtcGetCUBINSize") == nullptr || !program->compiled) return INVALID_PROGRAM;
    *size = program->image.size();
    return 0;
}

int nvrtc_GetCUBIN(nvrtcProgram program, char *out) {
    INJECT();
    if (known(program, "nvrtcGetCUBIN") == nullptr || !program->compiled) return INVALID_PROGRAM;
    memcpy(out, program->image.data(), program->image.size());
    return 0;
}

int nvrtc_GetProgramLogSize(nvrtcProgram program, size_t *size) {
    INJECT();
    if (known(program, "nvrtcGetProgramLogSize") == nullptr) return INVALID_PROGRAM;
    *size = program->log.size() + 1;
    return 0;
}

int nvrtc_GetProgramLog(nvrtcProgram program, char *out) {
    INJECT();
    if (known(program, "nvrtcGetProgramLog") == nullptr) return INVALID_PROGRAM;
    memcpy(out, program->log.c_str(), program->log.size() + 1);
    return 0;
}

/* NVRTC has GetErrorString too, which the backend does not need. */
extern "C" STANDIN_EXPORT const char *nvrtcGetErrorString(int code) {
    return code == 0 ? "NVRTC_SUCCESS" : "an error of NVRTC's stand-in";
}
