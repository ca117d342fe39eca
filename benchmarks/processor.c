/* A processor with fewer instructions, for processes that start with LD_PRELOAD=this library.

   The kernel lets CPUID fault, and the handler answers for the processor that RAYDR_PROCESSOR names. Libraries then
   choose their code as they do on such a processor. They run at full speed. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define SET_CPUID 0x1012 /* ARCH_SET_CPUID of arch_prctl */

struct processor {
    const char *name, *vendor;
    unsigned signature;   /* leaf 1: family, model, stepping */
    unsigned extensions;  /* leaf 7: AVX2, BMI, AVX-512 */
    unsigned second_level; /* leaf 0x80000006: size of the L2 cache */
};

static const struct processor KNOWN[] = {
    {"haswell", "GenuineIntel", 0x000306c3, 0x000007a9, 0x01006040},  /* 256 KB */
    {"skylakex", "GenuineIntel", 0x00050654, 0xd19f07a9, 0x04006040}, /* 1 MB, AVX-512 */
    {"zen", "AuthenticAMD", 0x00830f10, 0x219c01a9, 0x02006140},      /* Zen 2: 512 KB */
};
static const struct processor *chosen;

static int (*set_action)(int, const struct sigaction *, struct sigaction *);

static void answer(int number, siginfo_t *information, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)r[REG_RIP];
    unsigned leaf = (unsigned)r[REG_RAX], part = (unsigned)r[REG_RCX], a, b, c, d;
    (void)information;
    if (code[0] != 0x0f || code[1] != 0xa2) { /* a real fault */
        signal(number, SIG_DFL);
        return;
    }
    syscall(SYS_arch_prctl, SET_CPUID, 1);
    __cpuid_count(leaf, part, a, b, c, d);
    syscall(SYS_arch_prctl, SET_CPUID, 0);
    if (leaf == 0) {
        memcpy(&b, chosen->vendor, 4), memcpy(&d, chosen->vendor + 4, 4), memcpy(&c, chosen->vendor + 8, 4);
    } else if (leaf == 1) {
        a = chosen->signature;
    } else if (leaf == 7) {
        b = part == 0 ? b & chosen->extensions : 0;
        a = c = d = 0;
    } else if (leaf == 0x80000006) {
        c = chosen->second_level;
    }
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
}

int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
    if (!set_action)
        set_action = dlsym(RTLD_NEXT, "sigaction");
    return chosen && number == SIGSEGV ? 0 : set_action(number, action, before);
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("RAYDR_PROCESSOR");
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    for (size_t i = 0; name && i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!strcmp(KNOWN[i].name, name)) {
            if (sigaction(SIGSEGV, &action, NULL) || syscall(SYS_arch_prctl, SET_CPUID, 0))
                _exit(86);
            chosen = &KNOWN[i];
        }
}
