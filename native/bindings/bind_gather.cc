#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/convert.h"
#include "text/gather.h"

namespace stepwell::bindings {

namespace {

std::shared_ptr<JaggedRows> MakeRows(size_t num_features, In<int64_t> values, In<int64_t> offsets,
                                     std::optional<In<float>> weights) {
  if (num_features == 0 || offsets.size() == 0 || (offsets.size() - 1) % num_features != 0) {
    Check(Status(Code::kInvalid, "offsets has " + std::to_string(offsets.size()) + " entries, expected 1 more than a " +
                                     "multiple of " + std::to_string(num_features) + " features"));
  }
  if (weights) CheckSize(weights->size(), values.size(), "weights");
  auto made = std::make_shared<JaggedRows>();
  Status status;
  {
    nb::gil_scoped_release release;
    const JaggedIds ids{values.data(), offsets.data(), weights ? weights->data() : nullptr, values.size(),
                        (offsets.size() - 1) / num_features};
    status = JaggedRows::Make(ids, num_features, made.get());
  }
  Check(status);
  return made;
}

int64_t Place(const JaggedGather& gather, In<int64_t> rows, Out<int64_t> offsets) {
  CheckSize(offsets.size(), gather.num_features() * rows.size() + 1, "offsets");
  Status status;
  {
    nb::gil_scoped_release release;
    status = gather.Place(rows.data(), rows.size(), offsets.data());
  }
  Check(status);
  return offsets.data()[offsets.size() - 1];
}

void Copy(const JaggedGather& gather, In<int64_t> rows, In<int64_t> offsets, Out<int64_t> values,
          std::optional<Out<float>> weights) {
  CheckSize(offsets.size(), gather.num_features() * rows.size() + 1, "offsets");
  CheckSize(values.size(), static_cast<size_t>(offsets.data()[offsets.size() - 1]), "values");
  if (values.size() > 0 && weights.has_value() != gather.weighted()) {
    Check(Status(Code::kInvalid, "weights: expected an array exactly where the ids have weights"));
  }
  if (weights) CheckSize(weights->size(), values.size(), "weights");
  Status status;
  {
    nb::gil_scoped_release release;
    float* const out = weights && values.size() > 0 ? weights->data() : nullptr;
    status = gather.Copy(rows.data(), rows.size(), offsets.data(), values.data(), out);
  }
  Check(status);
}

void Fixed(nb::list blocks, In<int64_t> rows, OutRows out) {
  std::vector<InRows> held;
  std::vector<FixedBlock> pointers;
  for (nb::handle block : blocks) {
    held.push_back(nb::cast<InRows>(block));
    CheckSize(held.back().shape(1), out.shape(1), "a row of a block");
    pointers.push_back({held.back().data(), held.back().shape(0)});
  }
  CheckSize(out.shape(0), rows.size(), "out");
  Status status;
  {
    nb::gil_scoped_release release;
    status = GatherFixed(pointers, out.shape(1), rows.data(), rows.size(), out.data());
  }
  Check(status);
}

}  // namespace

void BindGather(nb::module_& module) {
  nb::class_<JaggedRows>(module, "JaggedRows")
      .def(nb::new_(&MakeRows), nb::arg("num_features"), nb::arg("values"), nb::arg("offsets"),
           nb::arg("weights").none())
      .def_prop_ro("num_rows", &JaggedRows::num_rows)
      .def_prop_ro("num_bytes", &JaggedRows::num_bytes);
  nb::class_<JaggedGather>(module, "JaggedGather")
      .def(nb::init<>())
      .def("add",
           [](JaggedGather& self, std::shared_ptr<JaggedRows> block) { Check(self.Add(std::move(block))); },
           nb::arg("block"))
      .def("place", &Place, nb::arg("rows"), nb::arg("offsets"))
      .def("copy", &Copy, nb::arg("rows"), nb::arg("offsets"), nb::arg("values"), nb::arg("weights").none())
      .def_prop_ro("num_rows", &JaggedGather::num_rows);
  module.def("gather_fixed", &Fixed, nb::arg("blocks"), nb::arg("rows"), nb::arg("out"));
}

}  // namespace stepwell::bindings
