#include <algorithm>
#include <string>
#include <vector>

#include "bindings/convert.h"
#include "text/tsv.h"

namespace stepwell::bindings {

namespace {

using Values = nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

size_t Count(In<uint8_t> data) {
  nb::gil_scoped_release release;
  return CountLines(data.data(), data.size());
}

size_t Decode(In<uint8_t> data, In<int32_t> kinds, Values values, OutRows valid, Out<int16_t> bad, ThreadPool* pool) {
  const size_t num_rows = bad.size();
  std::vector<TsvField> fields;
  size_t taken = 0;
  for (size_t f = 0; f < kinds.size(); ++f) {
    const int32_t kind = kinds.data()[f];
    if (kind < -1 || kind > 1) Check(Status(Code::kInvalid, "kinds: found " + std::to_string(kind) + ", expected -1 to 1"));
    TsvField field{static_cast<TsvKind>(kind), nullptr, nullptr};
    if (kind >= 0) {
      field.values = values.data() + std::min(taken, values.shape(0)) * num_rows;
      field.valid = valid.data() + std::min(taken, valid.shape(0)) * num_rows;
      ++taken;
    }
    fields.push_back(field);
  }
  CheckSize(values.shape(0), taken, "values");
  CheckSize(valid.shape(0), taken, "valid");
  if (taken > 0) {
    CheckSize(values.shape(1), num_rows, "a row of values");
    CheckSize(valid.shape(1), num_rows, "a row of valid");
  }
  if (fields.empty()) Check(Status(Code::kInvalid, "kinds: found none, expected one for each field of a line"));
  nb::gil_scoped_release release;
  if (CountLines(data.data(), data.size()) != num_rows) {
    throw StatusError(Status(Code::kInvalid, "bad: expected one entry for each of the data's lines"));
  }
  return DecodeTsv(data.data(), data.size(), fields, bad.data(), pool);
}

}  // namespace

void BindTsv(nb::module_& module) {
  module.def("count_lines", &Count, nb::arg("data"));
  module.def("decode_tsv", &Decode, nb::arg("data"), nb::arg("kinds"), nb::arg("values"), nb::arg("valid"),
             nb::arg("bad"), nb::arg("pool").none() = nb::none());
}

}  // namespace stepwell::bindings
