#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bindings/convert.h"
#include "util/thread_pool.h"

namespace stepwell::bindings {

namespace {

const char* ClassOf(Code code) {
  switch (code) {
    case Code::kOk:
    case Code::kInvalid: return "ConfigError";
    case Code::kBudgetTooSmall: return "BudgetTooSmall";
    case Code::kFull: return "StoreFull";
    case Code::kCorrupt: return "StoreCorrupt";
    case Code::kIoError: return "StoreIOError";
    case Code::kDiskFull: return "DiskFull";
    case Code::kLocked: return "StoreLocked";
    case Code::kFormat: return "StoreFormatError";
    case Code::kClosed: return "StoreClosed";
  }
  return "StoreError";
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "Stepwell's C++ core. Use it through stepwell.native.";
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const StatusError& error) {
      nb::object errors = nb::module_::import_("stepwell.errors");
      nb::object type = errors.attr(ClassOf(error.status.code()));
      PyErr_SetString(type.ptr(), error.status.message().c_str());
    }
  });
  module.def("build_info", [] {
    nb::dict info;
#if defined(__OPTIMIZE__)
    info["optimized"] = true;
#else
    info["optimized"] = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
    info["sanitizer"] = "address";
#elif defined(__SANITIZE_THREAD__)
    info["sanitizer"] = "thread";
#else
    info["sanitizer"] = "";
#endif
    info["compiler"] = __VERSION__;
    return info;
  });
  nb::class_<ThreadPool>(module, "ThreadPool")
      .def("__init__",
           [](ThreadPool* self, int num_threads, uintptr_t team) {
             if (num_threads < 1 || num_threads > 1024) {
               Check(Status(Code::kInvalid,
                            "num_threads is " + std::to_string(num_threads) + ", expected 1 to 1024"));
             }
             new (self) ThreadPool(num_threads, reinterpret_cast<Team>(team));
           },
           nb::arg("num_threads"), nb::arg("team") = 0)
      .def_prop_ro("num_threads", &ThreadPool::num_threads)
      .def_prop_ro("has_team", &ThreadPool::has_team);
  BindRows(module);
  BindDram(module);
  BindFeatures(module);
  BindGather(module);
  BindSparse(module);
  BindGroup(module);
  BindSsd(module);
  BindTsv(module);
}

}  // namespace stepwell::bindings
