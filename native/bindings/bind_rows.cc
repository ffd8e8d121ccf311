#include <string>

#include "bindings/convert.h"
#include "rows/counting_filter.h"
#include "rows/expiry.h"
#include "rows/initializer.h"

namespace stepwell::bindings {

namespace {

void DrawWeights(const InitProgram& program, uint64_t key, In<int64_t> ids, uint32_t dim, int weight_dtype,
                 OutRows out) {
  if (!ValidInitProgram(program, dim, weight_dtype)) Check(Status(Code::kInvalid, "not a valid init program"));
  CheckSize(out.shape(0), ids.size(), "out");
  CheckSize(out.shape(1), static_cast<size_t>(dim) * (weight_dtype == 0 ? 4 : 2), "a row of out");
  nb::gil_scoped_release release;
  std::vector<std::byte*> rows(ids.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = reinterpret_cast<std::byte*>(out.data()) + i * out.shape(1);
  }
  InitialWeights(program, key, ids.data(), ids.size(), dim, weight_dtype, rows.data());
}

void DrawAdmission(uint64_t key, In<int64_t> ids, uint32_t step, Out<uint32_t> draws) {
  CheckSize(draws.size(), ids.size(), "draws");
  for (size_t i = 0; i < ids.size(); ++i) draws.data()[i] = AdmissionDraw(key, ids.data()[i], step);
}

void Count(Out<uint16_t> counters, size_t width, In<int64_t> ids, Out<uint16_t> counts) {
  CheckSize(counters.size(), kBucketsOfIds * width, "counters");
  CheckSize(counts.size(), ids.size(), "counts");
  nb::gil_scoped_release release;
  CountIds(counters.data(), width, ids.data(), ids.size(), counts.data());
}

void Mix(In<int64_t> ids, Out<uint64_t> keys) {
  CheckSize(keys.size(), ids.size(), "keys");
  for (size_t i = 0; i < ids.size(); ++i) keys.data()[i] = KeyOfId(ids.data()[i]);
}

void Expired(const ExpiryRule& rule, In<int64_t> ids, In<uint32_t> last_steps, Out<uint8_t> expired) {
  CheckSize(last_steps.size(), ids.size(), "last_steps");
  CheckSize(expired.size(), ids.size(), "expired");
  for (size_t i = 0; i < ids.size(); ++i) {
    expired.data()[i] = rule.Expired(KeyOfId(ids.data()[i]), 1, last_steps.data()[i]);
  }
}

}  // namespace

void BindRows(nb::module_& module) {
  nb::class_<InitProgram>(module, "InitProgram")
      .def("__init__",
           [](InitProgram* self, int kind, float scale, int32_t a, int32_t b, float constant) {
             new (self) InitProgram{kind, scale, a, b, constant};
           },
           nb::arg("kind"), nb::arg("scale"), nb::arg("a"), nb::arg("b"), nb::arg("constant"));
  nb::class_<ExpiryRule>(module, "ExpiryRule")
      .def("__init__",
           [](ExpiryRule* self, uint32_t live_from_step, uint32_t tie_class) {
             new (self) ExpiryRule{live_from_step, tie_class};
           },
           nb::arg("live_from_step") = 0, nb::arg("tie_class") = 0)
      .def("expired", &Expired);
  module.def("draw_weights", &DrawWeights);
  module.def("draw_admission", &DrawAdmission);
  module.def("count_ids", &Count);
  module.def("mix64", &Mix);
}

}  // namespace stepwell::bindings
