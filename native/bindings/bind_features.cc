// What features need: ids from strings and crosses, jagged ids from columns, dense columns.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bindings/convert.h"
#include "text/dense_column.h"
#include "text/jagged_ids.h"
#include "text/string_ids.h"

namespace stepwell::bindings {

namespace {

using Rows2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

StringBatch Strings(const In<uint8_t>& data, const In<int64_t>& offsets) {
  if (offsets.size() == 0) Check(Status(Code::kInvalid, "offsets of strings: found none, expected n + 1"));
  const StringBatch batch{data.data(), data.size(), offsets.data(), offsets.size() - 1};
  Check(batch.Validate());
  return batch;
}

const uint8_t* MaskOf(const std::optional<In<uint8_t>>& mask, size_t size, const char* name) {
  if (!mask) return nullptr;
  CheckSize(mask->size(), size, name);
  return mask->data();
}

void Hash(In<uint8_t> data, In<int64_t> offsets, Out<int64_t> ids, ThreadPool* pool) {
  const StringBatch strings = Strings(data, offsets);
  CheckSize(ids.size(), strings.size, "ids");
  nb::gil_scoped_release release;
  HashStrings(strings, ids.data(), pool);
}

size_t Parse(In<uint8_t> data, In<int64_t> offsets, std::optional<In<uint8_t>> wanted, Out<int64_t> ids,
             Out<uint8_t> bad, ThreadPool* pool) {
  const StringBatch strings = Strings(data, offsets);
  const uint8_t* mask = MaskOf(wanted, strings.size, "wanted");
  CheckSize(ids.size(), strings.size, "ids");
  CheckSize(bad.size(), strings.size, "bad");
  nb::gil_scoped_release release;
  return ParseHex(strings, mask, ids.data(), bad.data(), pool);
}

void HashTogether(nb::list columns, Out<int64_t> ids, ThreadPool* pool) {
  std::vector<In<int64_t>> held;
  std::vector<const int64_t*> pointers;
  for (nb::handle column : columns) {
    held.push_back(nb::cast<In<int64_t>>(column));
    CheckSize(held.back().size(), ids.size(), "a column");
    pointers.push_back(held.back().data());
  }
  nb::gil_scoped_release release;
  HashColumns(pointers.data(), pointers.size(), ids.size(), ids.data(), pool);
}

template <class Number>
size_t Transform(In<Number> values, std::optional<In<uint8_t>> present, const DenseRule& rule, Rows2 out,
                 size_t column, Out<uint8_t> bad, ThreadPool* pool) {
  CheckSize(out.shape(0), values.size(), "out");
  CheckSize(bad.size(), values.size(), "bad");
  if (column >= out.shape(1)) Check(Status(Code::kInvalid, "column is beyond the columns of out"));
  const uint8_t* mask = MaskOf(present, values.size(), "present");
  nb::gil_scoped_release release;
  return TransformDense(values.data(), mask, values.size(), rule, out.data() + column, out.shape(1), bad.data(),
                        pool);
}

// Features' columns, then their ids together. Holds the arrays it was given.
class JaggedParts {
 public:
  explicit JaggedParts(size_t num_rows) : num_rows_(num_rows) {}

  size_t Add(In<int64_t> values, std::optional<In<int64_t>> offsets, std::optional<In<uint8_t>> present,
             std::optional<In<float>> weights, std::optional<int64_t> fill, size_t max_len, int keep) {
    if (keep < 0 || keep > 2) Check(Status(Code::kInvalid, "keep: expected 0, 1 or 2"));
    if (offsets) CheckSize(offsets->size(), num_rows_ + 1, "offsets");
    if (weights) CheckSize(weights->size(), values.size(), "weights");
    const IdColumn column{values.data(),
                          values.size(),
                          offsets ? offsets->data() : nullptr,
                          MaskOf(present, num_rows_, "present"),
                          weights ? weights->data() : nullptr,
                          fill.has_value(),
                          fill.value_or(0),
                          max_len,
                          static_cast<Keep>(keep)};
    size_t num_ids = 0, num_longer = 0;
    Status status;
    {
      nb::gil_scoped_release release;
      status = column.Validate(num_rows_);
      if (status.ok()) column.Count(num_rows_, &num_ids, &num_longer);
    }
    Check(status);
    starts_.push_back(starts_.back() + num_ids);
    columns_.push_back(column);
    held_.push_back(Held{std::move(values), std::move(offsets), std::move(present), std::move(weights)});
    return num_longer;
  }

  size_t num_ids() const { return starts_.back(); }

  void Pack(Out<int64_t> values, Out<int64_t> offsets, std::optional<Out<float>> weights, ThreadPool* pool) const {
    CheckSize(values.size(), num_ids(), "values");
    CheckSize(offsets.size(), columns_.size() * num_rows_ + 1, "offsets");
    if (weights) CheckSize(weights->size(), num_ids(), "weights");
    nb::gil_scoped_release release;
    offsets.data()[0] = 0;
    const auto pack = [&](size_t i) {
      float* weights_out = weights ? weights->data() + starts_[i] : nullptr;
      columns_[i].Pack(num_rows_, static_cast<int64_t>(starts_[i]), values.data() + starts_[i], weights_out,
                       offsets.data() + 1 + i * num_rows_);
    };
    if (pool != nullptr) {
      pool->Run(columns_.size(), pack);
    } else {
      for (size_t i = 0; i < columns_.size(); ++i) pack(i);
    }
  }

 private:
  struct Held {
    In<int64_t> values;
    std::optional<In<int64_t>> offsets;
    std::optional<In<uint8_t>> present;
    std::optional<In<float>> weights;
  };
  size_t num_rows_;
  std::vector<size_t> starts_{0};
  std::vector<IdColumn> columns_;
  std::vector<Held> held_;
};

}  // namespace

void BindFeatures(nb::module_& module) {
  const auto no_pool = nb::arg("pool").none() = nb::none();
  module.def("hash_strings", &Hash, nb::arg("data"), nb::arg("offsets"), nb::arg("ids"), no_pool);
  module.def("parse_hex", &Parse, nb::arg("data"), nb::arg("offsets"), nb::arg("wanted").none(), nb::arg("ids"),
             nb::arg("bad"), no_pool);
  module.def("hash_columns", &HashTogether, nb::arg("columns"), nb::arg("ids"), no_pool);
  nb::class_<DenseRule>(module, "DenseRule")
      .def("__init__",
           [](DenseRule* self, double missing, bool log1p, double mean, double std, double low, double high) {
             new (self) DenseRule{missing, log1p, mean, std, low, high};
           },
           nb::arg("missing"), nb::arg("log1p"), nb::arg("mean"), nb::arg("std"), nb::arg("low"), nb::arg("high"));
  const auto def_transform = [&](auto function) {
    module.def("transform_dense", function, nb::arg("values").noconvert(), nb::arg("present").none(), nb::arg("rule"),
               nb::arg("out").noconvert(), nb::arg("column"), nb::arg("bad"), no_pool);
  };
  def_transform(&Transform<int32_t>);
  def_transform(&Transform<int64_t>);
  def_transform(&Transform<float>);
  def_transform(&Transform<double>);
  nb::class_<JaggedParts>(module, "JaggedParts")
      .def(nb::init<size_t>(), nb::arg("num_rows"))
      .def("add", &JaggedParts::Add, nb::arg("values"), nb::arg("offsets").none(), nb::arg("present").none(),
           nb::arg("weights").none(), nb::arg("fill").none(), nb::arg("max_len"), nb::arg("keep"))
      .def_prop_ro("num_ids", &JaggedParts::num_ids)
      .def("pack", &JaggedParts::Pack, nb::arg("values"), nb::arg("offsets"), nb::arg("weights").none(), no_pool);
}

}  // namespace stepwell::bindings
