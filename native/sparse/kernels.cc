#include "sparse/kernels.h"

#include "sparse/kernel_sets.h"

namespace stepwell {

const Kernels& KernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::Table();
  if (isa == Isa::kAvx2) return avx2::Table();
#else
  (void)isa;
#endif
  return plain::Table();
}

}  // namespace stepwell
