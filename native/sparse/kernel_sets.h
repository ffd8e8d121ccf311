// The kernels by instruction set. Private to native/sparse; others call KernelsFor.
#pragma once

#include "sparse/kernels.h"

namespace stepwell {

namespace plain {
const Kernels& Table();
}
#if defined(__x86_64__)
namespace avx2 {
const Kernels& Table();
}
namespace avx512 {
const Kernels& Table();
}
#endif

}  // namespace stepwell
