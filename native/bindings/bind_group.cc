#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>

#include <string>

#include "bindings/convert.h"
#include "dram/table_group.h"

namespace stepwell::bindings {

namespace {

// Keeps the tables that the group only borrows.
struct GroupHandle {
  std::vector<nb::object> cores;
  TableGroup group;
};

std::unique_ptr<GroupHandle> MakeGroup(nb::list members, std::shared_ptr<ThreadPool> pool) {
  std::vector<nb::object> cores;
  std::vector<TableGroup::Member> made;
  for (nb::handle member : members) {
    const nb::tuple parts = nb::cast<nb::tuple>(member);
    nb::object core = parts[0];
    DramTable& table = nb::cast<DramTable&>(core);
    const uint32_t number = nb::cast<uint32_t>(parts[1]);
    if (number >= table.num_tables()) {
      Check(Status(Code::kInvalid, "table number " + std::to_string(number) + " is not one of " +
                                       std::to_string(table.num_tables())));
    }
    made.push_back({&table, number, nb::cast<uint32_t>(parts[2])});
    cores.push_back(std::move(core));
  }
  return std::unique_ptr<GroupHandle>(
      new GroupHandle{std::move(cores), TableGroup(std::move(made), std::move(pool))});
}

void CheckStarts(const GroupHandle& self, const In<int64_t>& starts, size_t n) {
  CheckSize(starts.size(), self.group.num_members() + 1, "starts");
  bool rising = starts.data()[0] == 0;
  for (size_t m = 0; m < self.group.num_members(); ++m) rising = rising && starts.data()[m] <= starts.data()[m + 1];
  if (!rising) Check(Status(Code::kInvalid, "starts must begin with 0 and never fall"));
  CheckSize(n, static_cast<size_t>(starts.data()[self.group.num_members()]), "ids");
  if (n >= UINT32_MAX) Check(Status(Code::kInvalid, "a call takes fewer than 2^32 - 1 ids"));
}

TableGroup::Batch BatchOf(const GroupHandle& self, const In<int64_t>& starts, const In<int64_t>& ids,
                          const Out<uint32_t>& slots) {
  CheckStarts(self, starts, ids.size());
  CheckSize(slots.size(), ids.size(), "slots");
  return {starts.data(), ids.data(), slots.data()};
}

void CheckPositions(const In<uint32_t>& positions, size_t n) {
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions.data()[i] < n && (i == 0 || positions.data()[i - 1] < positions.data()[i])) continue;
    Check(Status(Code::kInvalid, "positions must rise and be below " + std::to_string(n)));
  }
}

// Null for an array of no entries, which says that none is wanted.
template <class T>
T* Optional(const Out<T>& values, size_t n, const char* name) {
  if (values.size() == 0) return nullptr;
  CheckSize(values.size(), n, name);
  return values.data();
}

size_t Pin(GroupHandle& self, In<int64_t> starts, In<int64_t> ids, Out<uint32_t> slots, Out<uint64_t> addresses) {
  const TableGroup::Batch batch = BatchOf(self, starts, ids, slots);
  CheckSize(addresses.size(), ids.size(), "addresses");
  nb::gil_scoped_release release;
  return self.group.Pin(batch, addresses.data());
}

nb::tuple Place(GroupHandle& self, In<int64_t> starts, In<int64_t> ids, Out<uint32_t> slots, Out<uint64_t> addresses,
                In<uint32_t> positions, In<uint64_t> sources) {
  const TableGroup::Batch batch = BatchOf(self, starts, ids, slots);
  CheckSize(addresses.size(), ids.size(), "addresses");
  CheckPositions(positions, ids.size());
  CheckSize(sources.size(), positions.size(), "sources");
  size_t clean = 0, born = 0;
  Status status;
  {
    nb::gil_scoped_release release;
    status = self.group.Place(batch, positions.data(), sources.data(), positions.size(), addresses.data(), &clean,
                              &born);
  }
  Check(status);
  return nb::make_tuple(clean, born);
}

size_t Begin(GroupHandle& self, In<int64_t> starts, In<int64_t> ids, Out<uint32_t> slots) {
  const TableGroup::Batch batch = BatchOf(self, starts, ids, slots);
  nb::gil_scoped_release release;
  return self.group.Begin(batch);
}

nb::object Unborn(GroupHandle& self, In<int64_t> starts, In<int64_t> ids, Out<uint32_t> slots, In<uint8_t> wanted) {
  const TableGroup::Batch batch = BatchOf(self, starts, ids, slots);
  CheckSize(wanted.size(), self.group.num_members(), "wanted");
  std::vector<uint32_t> positions;
  {
    nb::gil_scoped_release release;
    positions = self.group.Unborn(batch, wanted.data());
  }
  const size_t n = positions.size();
  return nb::cast(ToNumpy(std::move(positions), {n}));
}

void Commit(GroupHandle& self, In<int64_t> starts, In<int64_t> ids, Out<uint32_t> slots, uint32_t step,
            Out<uint8_t> refused, bool unpin, Out<uint8_t> outcomes, Out<uint32_t> old_steps, Out<int64_t> born) {
  const TableGroup::Batch batch = BatchOf(self, starts, ids, slots);
  const uint8_t* refused_or_none = Optional(refused, ids.size(), "refused");
  uint8_t* outcomes_or_none = Optional(outcomes, ids.size(), "outcomes");
  uint32_t* old_or_none = Optional(old_steps, ids.size(), "old_steps");
  CheckSize(born.size(), self.group.num_members(), "born");
  nb::gil_scoped_release release;
  self.group.Commit(batch, step, refused_or_none, unpin, outcomes_or_none, old_or_none, born.data());
}

void Unpin(GroupHandle& self, In<int64_t> starts, In<int64_t> ids, Out<uint32_t> slots) {
  const TableGroup::Batch batch = BatchOf(self, starts, ids, slots);
  nb::gil_scoped_release release;
  self.group.Unpin(batch);
}

void Read(GroupHandle& self, In<int64_t> starts, In<int64_t> ids, Out<uint8_t> buffer, Out<uint64_t> addresses,
          Out<uint8_t> found) {
  CheckStarts(self, starts, ids.size());
  size_t bytes = 0;
  for (size_t m = 0; m < self.group.num_members(); ++m) {
    bytes += static_cast<size_t>(starts.data()[m + 1] - starts.data()[m]) *
             self.group.member(m).core->options().record_bytes;
  }
  CheckSize(buffer.size(), bytes, "buffer");
  CheckSize(addresses.size(), ids.size(), "addresses");
  CheckSize(found.size(), ids.size(), "found");
  nb::gil_scoped_release release;
  self.group.Read(starts.data(), ids.data(), reinterpret_cast<std::byte*>(buffer.data()), addresses.data(),
                  found.data());
}

void FirstValues(GroupHandle& self, In<int64_t> starts, In<int64_t> ids, In<uint32_t> positions,
                 In<uint64_t> addresses) {
  CheckStarts(self, starts, ids.size());
  CheckPositions(positions, ids.size());
  CheckSize(addresses.size(), ids.size(), "addresses");
  nb::gil_scoped_release release;
  self.group.FirstValues(starts.data(), ids.data(), positions.data(), positions.size(), addresses.data());
}

}  // namespace

void BindGroup(nb::module_& module) {
  nb::class_<GroupHandle>(module, "TableGroup")
      .def(nb::new_(&MakeGroup), nb::arg("members"), nb::arg("pool"))
      .def("pin", &Pin)
      .def("place", &Place)
      .def("begin", &Begin)
      .def("unborn", &Unborn)
      .def("commit", &Commit)
      .def("unpin", &Unpin)
      .def("read", &Read)
      .def("first_values", &FirstValues);
}

}  // namespace stepwell::bindings
