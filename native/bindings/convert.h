// What all bindings share: array types, and the one place where a Status becomes an exception.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "stepwell/status.h"

namespace stepwell::bindings {

namespace nb = nanobind;

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using InRows = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutRows = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Thrown in a binding, turned into the class of stepwell.errors that belongs to its code.
struct StatusError : std::exception {
  explicit StatusError(Status failed) : status(std::move(failed)) {}
  const char* what() const noexcept override { return status.message().c_str(); }
  Status status;
};

inline void Check(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}

inline void CheckSize(size_t have, size_t want, const char* name) {
  if (have != want) {
    throw StatusError(Status(Code::kInvalid, std::string(name) + " has " + std::to_string(have) +
                                                 " entries, expected " + std::to_string(want)));
  }
}

// Hands a vector's memory to numpy.
template <class T>
nb::ndarray<nb::numpy, T> ToNumpy(std::vector<T>&& values, std::vector<size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  return nb::ndarray<nb::numpy, T>(owned->data(), shape.size(), shape.data(), owner);
}

void BindGather(nb::module_& module);
void BindRows(nb::module_& module);
void BindDram(nb::module_& module);
void BindFeatures(nb::module_& module);
void BindSparse(nb::module_& module);
void BindGroup(nb::module_& module);
void BindSsd(nb::module_& module);
void BindTsv(nb::module_& module);

}  // namespace stepwell::bindings
