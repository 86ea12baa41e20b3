// Function multiversioning: one body, compiled for several instruction sets, chosen when the library is loaded.
//
// Bits do not depend on the choice: the core is built with -ffp-contract=off and without -ffast-math, so every clone
// does the same IEEE operations in the same order, only more of them at a time.
#pragma once

// Sanitizers instrument the resolver, which runs before their runtime is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define AFFIDAVIT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define AFFIDAVIT_CLONES
#endif
