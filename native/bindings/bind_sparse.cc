#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "bindings/convert.h"
#include "sparse/plan.h"

namespace stepwell::bindings {

namespace {

using Floats = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using InFloats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Gradients = nb::ndarray<const float, nb::device::cpu>;  // samples may lie apart
using Weights = std::optional<In<float>>;

std::unique_ptr<Routed> MakeRouted(In<int64_t> values, In<int64_t> offsets, In<uint32_t> feature_tables,
                                   size_t num_tables, std::shared_ptr<ThreadPool> pool, bool occurrences) {
  std::unique_ptr<Routed> routed;
  Status status;
  {
    nb::gil_scoped_release release;
    status = Routed::Make(values.data(), values.size(), offsets.data(), offsets.size(), feature_tables.data(),
                          feature_tables.size(), num_tables, occurrences, pool.get(), &routed);
  }
  Check(status);
  return routed;
}

// A view that keeps the object alive.
template <class T>
auto View(nb::handle self, const T* data, size_t n) {
  return nb::ndarray<nb::numpy, const T, nb::ndim<1>>(data, {n}, self);
}

SparseTable MakeTable(uint32_t dim, int weight_dtype, std::vector<uint32_t> state_offsets, uint64_t key, int kind,
                      double weight_decay, double max_row_norm_grad, double momentum, bool nesterov, double eps,
                      double scale, double beta1, double beta2, double alpha, double beta, double l1, double l2) {
  return {dim,      weight_dtype, std::move(state_offsets), key,   kind,  weight_decay, max_row_norm_grad, momentum,
          nesterov, eps,          scale,                    beta1, beta2, alpha,        beta,              l1,
          l2};
}

Isa IsaNamed(const std::string& name) {
  if (name == "best") return BestIsa();
  if (name == "scalar") return Isa::kScalar;
  if (name == "avx2") return Isa::kAvx2;
  if (name == "avx512") return Isa::kAvx512;
  throw StatusError(Status(Code::kInvalid, "isa: found '" + name + "', expected best, scalar, avx2 or avx512"));
}

std::unique_ptr<SparsePlan> MakePlan(std::vector<SparseFeature> features, std::vector<SparseTable> tables,
                                     std::shared_ptr<ThreadPool> pool, const std::string& isa) {
  std::unique_ptr<SparsePlan> plan;
  Check(SparsePlan::Make(std::move(features), std::move(tables), std::move(pool), IsaNamed(isa), &plan));
  return plan;
}

template <class Array>
std::vector<SparseArray> Arrays(const std::vector<Array>& arrays) {
  std::vector<SparseArray> all;
  for (const Array& array : arrays) {
    SparseArray one;
    one.data = const_cast<float*>(array.data());  // those of gradients are only read
    int64_t inside = 1;  // the stride of an axis inside a sample
    for (size_t axis = array.ndim(); axis-- > 1;) {
      if (array.stride(axis) != inside && array.shape(axis) != 1 && array.size() != 0) {
        throw StatusError(Status(Code::kInvalid, "found an array whose samples are not contiguous, expected it copied"));
      }
      inside *= static_cast<int64_t>(array.shape(axis));
    }
    for (size_t axis = 0; axis < array.ndim(); ++axis) one.shape.push_back(array.shape(axis));
    if (array.ndim() > 0) one.stride = static_cast<size_t>(array.stride(0));
    all.push_back(std::move(one));
  }
  return all;
}

const float* WeightsOf(const Routed& routed, const Weights& weights) {
  if (!weights) return nullptr;
  CheckSize(weights->size(), routed.num_values(), "weights");
  return weights->data();
}

void CheckStep(uint32_t step) {
  if (step == 0) throw StatusError(Status(Code::kInvalid, "step: found 0, expected 1 to 2**32 - 1"));
}

void Lookup(const SparsePlan& plan, const Routed& routed, In<uint64_t> rows, const Weights& weights,
            const std::vector<Floats>& outputs) {
  CheckSize(rows.size(), routed.num_unique(), "rows");
  const float* const each = WeightsOf(routed, weights);
  const std::vector<SparseArray> arrays = Arrays(outputs);
  Status status;
  {
    nb::gil_scoped_release release;
    status = plan.Lookup(routed, rows.data(), each, arrays);
  }
  Check(status);
}

void SumGradients(const SparsePlan& plan, const Routed& routed, const Weights& weights,
                  const std::vector<Gradients>& grads, const std::vector<Floats>& sums) {
  const float* const each = WeightsOf(routed, weights);
  CheckSize(sums.size(), plan.num_tables(), "sums");
  CheckSize(routed.num_tables(), plan.num_tables(), "the batch's tables");
  std::vector<float*> to;
  for (size_t t = 0; t < sums.size(); ++t) {
    const auto rows = static_cast<size_t>(routed.starts()[t + 1] - routed.starts()[t]);
    CheckSize(sums[t].ndim(), 2, "the shape of sums");
    CheckSize(sums[t].shape(0), rows, "sums");
    CheckSize(sums[t].shape(1), plan.dim(t), "a row of sums");
    to.push_back(sums[t].data());
  }
  const std::vector<SparseArray> arrays = Arrays(grads);
  Status status;
  {
    nb::gil_scoped_release release;
    status = plan.SumGradients(routed, each, arrays, to);
  }
  Check(status);
}

void Update(const SparsePlan& plan, const Routed& routed, In<uint64_t> rows, const Weights& weights,
            const std::vector<Gradients>& grads, uint32_t step, In<double> rates) {
  CheckSize(rows.size(), routed.num_unique(), "rows");
  CheckSize(rates.size(), plan.num_tables(), "rates");
  CheckStep(step);
  const float* const each = WeightsOf(routed, weights);
  const std::vector<SparseArray> arrays = Arrays(grads);
  Status status;
  {
    nb::gil_scoped_release release;
    status = plan.Update(routed, rows.data(), each, arrays, step, rates.data());
  }
  Check(status);
}

void UpdateRows(const SparsePlan& plan, size_t table, In<int64_t> ids, In<uint64_t> rows, const InFloats& sums,
                uint32_t step, double rate) {
  if (table >= plan.num_tables()) {
    throw StatusError(Status(Code::kInvalid, "table number " + std::to_string(table) + " is not one of " +
                                                 std::to_string(plan.num_tables())));
  }
  CheckSize(rows.size(), ids.size(), "rows");
  CheckSize(sums.ndim(), 2, "the shape of sums");
  CheckSize(sums.shape(0), ids.size(), "sums");
  CheckSize(sums.shape(1), plan.dim(table), "a row of sums");
  CheckStep(step);
  Status status;
  {
    nb::gil_scoped_release release;
    status = plan.UpdateRows(table, ids.data(), rows.data(), ids.size(), sums.data(), step, rate);
  }
  Check(status);
}

}  // namespace

void BindSparse(nb::module_& module) {
  nb::class_<Routed>(module, "Routed")
      .def(nb::new_(&MakeRouted), nb::arg("values").noconvert(), nb::arg("offsets").noconvert(),
           nb::arg("feature_tables").noconvert(), nb::arg("num_tables"), nb::arg("pool"),
           nb::arg("occurrences") = true)
      .def_prop_ro("ids",
                   [](nb::handle_t<Routed> self) {
                     const Routed& routed = nb::cast<const Routed&>(self);
                     return View(self, routed.ids(), routed.num_unique());
                   })
      .def_prop_ro("one_per_bag", &Routed::one_per_bag)
      .def_prop_ro("longest",
                   [](nb::handle_t<Routed> self) {
                     const Routed& routed = nb::cast<const Routed&>(self);
                     return View(self, routed.longest().data(), routed.longest().size());
                   })
      .def_prop_ro("starts",
                   [](nb::handle_t<Routed> self) {
                     const Routed& routed = nb::cast<const Routed&>(self);
                     return View(self, routed.starts().data(), routed.starts().size());
                   })
      .def_prop_ro("inverse",
                   [](nb::handle_t<Routed> self) {
                     const Routed& routed = nb::cast<const Routed&>(self);
                     return View(self, routed.inverse(), routed.num_values());
                   })
      .def_prop_ro("batch_size", &Routed::batch_size)
      .def_prop_ro("num_unique", &Routed::num_unique);
  nb::class_<SparseFeature>(module, "SparseFeature")
      .def("__init__",
           [](SparseFeature* self, uint32_t table, int pooling, uint32_t output, uint32_t column, uint32_t max_len) {
             new (self) SparseFeature{table, pooling, output, column, max_len};
           },
           nb::arg("table"), nb::arg("pooling"), nb::arg("output"), nb::arg("column") = 0, nb::arg("max_len") = 0);
  nb::class_<SparseTable>(module, "SparseTable")
      .def(nb::new_(&MakeTable), nb::kw_only(), nb::arg("dim"), nb::arg("weight_dtype"), nb::arg("state_offsets"),
           nb::arg("key"), nb::arg("kind"), nb::arg("weight_decay") = 0.0, nb::arg("max_row_norm_grad") = 0.0,
           nb::arg("momentum") = 0.0, nb::arg("nesterov") = false, nb::arg("eps") = 0.0, nb::arg("scale") = 1.0,
           nb::arg("beta1") = 0.0, nb::arg("beta2") = 0.0, nb::arg("alpha") = 0.0, nb::arg("beta") = 0.0,
           nb::arg("l1") = 0.0, nb::arg("l2") = 0.0);
  nb::class_<SparsePlan>(module, "SparsePlan")
      .def(nb::new_(&MakePlan), nb::arg("features"), nb::arg("tables"), nb::arg("pool"), nb::arg("isa") = "best")
      .def("lookup", &Lookup, nb::arg("routed"), nb::arg("rows").noconvert(), nb::arg("weights").none(),
           nb::arg("outputs").noconvert())
      .def("sum_gradients", &SumGradients, nb::arg("routed"), nb::arg("weights").none(),
           nb::arg("grads").noconvert(), nb::arg("sums").noconvert())
      .def("update", &Update, nb::arg("routed"), nb::arg("rows").noconvert(), nb::arg("weights").none(),
           nb::arg("grads").noconvert(), nb::arg("step"), nb::arg("rates").noconvert())
      .def("update_rows", &UpdateRows, nb::arg("table"), nb::arg("ids").noconvert(), nb::arg("rows").noconvert(),
           nb::arg("sums").noconvert(), nb::arg("step"), nb::arg("rate"));
}

}  // namespace stepwell::bindings
