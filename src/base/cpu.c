/* base/cpu.c - see cpu.h. The answer is computed once per process.
 *
 * An instruction set counts only when the system also saves its registers (XCR0). The leaves that describe AMX's
 * tiles (0x1D, 0x1E) are not asked: some virtual machines leave them zero although the tiles work.
 */
#include "base/cpu.h"

#include "base/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {
    [PL_CPU_PORTABLE] = "portable", [PL_CPU_AVX2] = "avx2", [PL_CPU_AVX512] = "avx512",
    [PL_CPU_BF16] = "bf16",         [PL_CPU_AMX] = "amx",
};
enum { LEVELS = sizeof level_names / sizeof level_names[0] };

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static enum pl_cpu_level answer;
static bool answer_amd;

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>

/* Registers the system saves, as bits of XCR0. */
#define XCR_AVX UINT64_C(0x6)
#define XCR_AVX512 UINT64_C(0xe6)
#define XCR_AMX UINT64_C(0x60000)

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_all(uint64_t bits, uint64_t wanted)
{
    return (bits & wanted) == wanted;
}

static enum pl_cpu_level ask_machine(void)
{
    unsigned a, b, c, d;
    const unsigned wanted1 = bit_FMA | bit_OSXSAVE | bit_AVX | bit_F16C;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, wanted1))
        return PL_CPU_PORTABLE;
    uint64_t xcr0 = read_xcr0();
    unsigned b7, d7;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c, &d7) || !has_all(b7, bit_AVX2) || !has_all(xcr0, XCR_AVX))
        return PL_CPU_PORTABLE;
    const unsigned wanted7 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if (!has_all(b7, wanted7) || !has_all(xcr0, XCR_AVX512))
        return PL_CPU_AVX2;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !has_all(a, 1u << 5))
        return PL_CPU_AVX512;
    if (!has_all(d7, 1u << 24 | 1u << 22) || !has_all(xcr0, XCR_AMX))
        return PL_CPU_BF16;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 ? PL_CPU_AMX : PL_CPU_BF16;
}

static bool ask_amd(void)
{
    unsigned a, name[3];
    return __get_cpuid(0, &a, &name[0], &name[2], &name[1]) && memcmp(name, "AuthenticAMD", 12) == 0;
}
#else
static enum pl_cpu_level ask_machine(void)
{
    return PL_CPU_PORTABLE;
}

static bool ask_amd(void)
{
    return false;
}
#endif

static void ask(void)
{
    const char *name = getenv("PELAGO_CPU");
    enum pl_cpu_level wish;
    answer = ask_machine();
    answer_amd = ask_amd();
    if (name != NULL && pl_cpu_level_of_name(name, &wish) && wish < answer)
        answer = wish;
}

enum pl_cpu_level pl_cpu_level(void)
{
    pthread_once(&asked, ask);
    return answer;
}

bool pl_cpu_bf16_is_fast(void)
{
    return pl_cpu_level() >= PL_CPU_BF16 && answer_amd;
}

const char *pl_cpu_level_name(enum pl_cpu_level level)
{
    pl_assert((unsigned)level < LEVELS);
    return level_names[level];
}

bool pl_cpu_level_of_name(const char *name, enum pl_cpu_level *level)
{
    for (unsigned i = 0; i < LEVELS; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *level = (enum pl_cpu_level)i;
            return true;
        }
    return false;
}

uint32_t pl_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    /* More processors than a cpu_set_t can name. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}
