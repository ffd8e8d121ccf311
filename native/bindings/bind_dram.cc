#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstring>
#include <string>

#include "bindings/convert.h"
#include "dram/dram_table.h"

namespace stepwell::bindings {

namespace {

const std::byte* Bytes(const InRows& rows) { return reinterpret_cast<const std::byte*>(rows.data()); }

void CheckTable(DramTable& self, uint32_t table) {
  if (table >= self.num_tables()) {
    Check(Status(Code::kInvalid, "table number " + std::to_string(table) + " is not one of " +
                                     std::to_string(self.num_tables())));
  }
}

void CheckRecords(DramTable& self, const InRows& records, size_t n) {
  CheckSize(records.shape(0), n, "records");
  CheckSize(records.shape(1), self.options().record_bytes, "a record");
}

std::unique_ptr<DramTable> OpenDram(uint32_t record_bytes, uint32_t count_offset, uint64_t max_rows,
                                    std::shared_ptr<ThreadPool> pool) {
  std::unique_ptr<DramTable> table;
  Check(DramTable::Open({record_bytes, count_offset, max_rows}, std::move(pool), &table));
  return table;
}

uint32_t AddTable(DramTable& self, uint64_t key, const InitProgram& program, uint32_t dim, int weight_dtype,
                  In<uint8_t> blank) {
  DramTableInit init;
  init.key = key;
  init.program = program;
  init.dim = dim;
  init.weight_dtype = weight_dtype;
  init.blank.resize(blank.size());
  std::memcpy(init.blank.data(), blank.data(), blank.size());
  uint32_t number = 0;
  Check(self.AddTable(std::move(init), &number));
  return number;
}

void Find(DramTable& self, uint32_t table, In<int64_t> ids, bool committed_only, uint32_t offset, OutRows out,
          Out<uint8_t> found) {
  CheckTable(self, table);
  const size_t n = ids.size();
  CheckSize(out.shape(0), n, "out");
  CheckSize(found.size(), n, "found");
  const uint32_t length = static_cast<uint32_t>(out.shape(1));
  if (offset + length > self.options().record_bytes) {
    Check(Status(Code::kInvalid, "bytes " + std::to_string(offset) + " to " + std::to_string(offset + length) +
                                     " are not all in a record of " + std::to_string(self.options().record_bytes)));
  }
  nb::gil_scoped_release release;
  self.Find(table, ids.data(), n, committed_only, offset, length, reinterpret_cast<std::byte*>(out.data()), length,
            found.data());
}

void FindSlots(DramTable& self, uint32_t table, In<int64_t> ids, bool pin, Out<int64_t> slots) {
  CheckTable(self, table);
  CheckSize(slots.size(), ids.size(), "slots");
  nb::gil_scoped_release release;
  self.FindSlots(table, ids.data(), ids.size(), pin, slots.data());
}

void FindOrInsert(DramTable& self, uint32_t table, In<int64_t> ids, bool pin, Out<int64_t> slots,
                  Out<uint8_t> fresh) {
  CheckTable(self, table);
  CheckSize(slots.size(), ids.size(), "slots");
  CheckSize(fresh.size(), ids.size(), "fresh");
  Status status;
  {
    nb::gil_scoped_release release;
    status = self.FindOrInsert(table, ids.data(), ids.size(), pin, slots.data(), fresh.data());
  }
  Check(status);
}

void InsertClean(DramTable& self, uint32_t table, In<int64_t> ids, InRows records, bool pin, Out<int64_t> slots,
                 Out<uint8_t> fresh) {
  CheckTable(self, table);
  CheckRecords(self, records, ids.size());
  CheckSize(slots.size(), ids.size(), "slots");
  CheckSize(fresh.size(), ids.size(), "fresh");
  Status status;
  {
    nb::gil_scoped_release release;
    status = self.InsertClean(table, ids.data(), Bytes(records), records.shape(1), ids.size(), pin, slots.data(),
                              fresh.data());
  }
  Check(status);
}

void InsertOrAssign(DramTable& self, uint32_t table, In<int64_t> ids, InRows records, Out<uint8_t> fresh) {
  CheckTable(self, table);
  CheckRecords(self, records, ids.size());
  CheckSize(fresh.size(), ids.size(), "fresh");
  Status status;
  {
    nb::gil_scoped_release release;
    status = self.InsertOrAssign(table, ids.data(), Bytes(records), records.shape(1), ids.size(), fresh.data());
  }
  Check(status);
}

void Erase(DramTable& self, uint32_t table, In<int64_t> ids, Out<uint8_t> erased) {
  CheckTable(self, table);
  CheckSize(erased.size(), ids.size(), "erased");
  nb::gil_scoped_release release;
  self.Erase(table, ids.data(), ids.size(), erased.data());
}

void Unpin(DramTable& self, In<int64_t> slots, In<uint8_t> dirty) {
  CheckSize(dirty.size(), slots.size(), "dirty");
  Status status;
  {
    nb::gil_scoped_release release;
    status = self.Unpin(slots.data(), slots.size(), dirty.data());
  }
  Check(status);
}

nb::tuple TakeVictims(DramTable& self, uint32_t table, size_t want, bool by_count, uint32_t decay_steps,
                      uint32_t now) {
  CheckTable(self, table);
  std::vector<int64_t> ids;
  std::vector<uint8_t> records;
  std::vector<uint8_t> need_store;
  const size_t record_bytes = self.options().record_bytes;
  {
    nb::gil_scoped_release release;
    ids.resize(want);
    need_store.resize(want);
    records.resize(want * record_bytes);
    const size_t got = self.TakeVictims(table, want, {by_count, decay_steps, now}, ids.data(),
                                        reinterpret_cast<std::byte*>(records.data()), need_store.data());
    ids.resize(got);
    need_store.resize(got);
    records.resize(got * record_bytes);
  }
  const size_t got = ids.size();
  return nb::make_tuple(ToNumpy(std::move(ids), {got}), ToNumpy(std::move(records), {got, record_bytes}),
                        ToNumpy(std::move(need_store), {got}));
}

nb::tuple CopyShard(DramTable& self, uint32_t table, uint32_t shard, bool dirty_only) {
  CheckTable(self, table);
  if (shard >= static_cast<uint32_t>(kNumShards)) {
    Check(Status(Code::kInvalid, "shard " + std::to_string(shard) + " is not one of 256"));
  }
  std::vector<int64_t> ids;
  std::vector<uint8_t> records;
  const size_t record_bytes = self.options().record_bytes;
  {
    nb::gil_scoped_release release;
    self.CopyShard(table, shard, dirty_only, &ids, &records);
  }
  const size_t got = ids.size();
  return nb::make_tuple(ToNumpy(std::move(ids), {got}), ToNumpy(std::move(records), {got, record_bytes}));
}

}  // namespace

void BindDram(nb::module_& module) {
  nb::class_<DramTable>(module, "DramTable")
      .def(nb::new_(&OpenDram), nb::arg("record_bytes"), nb::arg("count_offset"), nb::arg("max_rows"),
           nb::arg("pool"))
      .def("add_table", &AddTable, nb::arg("key"), nb::arg("program"), nb::arg("dim"), nb::arg("weight_dtype"),
           nb::arg("blank"))
      .def("set_expiry",
           [](DramTable& self, uint32_t table, const ExpiryRule& rule) {
             CheckTable(self, table);
             self.SetExpiry(table, std::make_shared<const ExpiryRule>(rule));
           })
      .def("find", &Find)
      .def("find_slots", &FindSlots)
      .def("find_or_insert", &FindOrInsert)
      .def("insert_clean", &InsertClean)
      .def("insert_or_assign", &InsertOrAssign)
      .def("erase", &Erase)
      .def("unpin", &Unpin)
      .def("take_victims", &TakeVictims)
      .def("release_clean",
           [](DramTable& self, uint32_t table, In<int64_t> ids) {
             CheckTable(self, table);
             nb::gil_scoped_release release;
             return self.ReleaseClean(table, ids.data(), ids.size());
           })
      .def("drop",
           [](DramTable& self, uint32_t table, bool all) {
             CheckTable(self, table);
             nb::gil_scoped_release release;
             return self.Drop(table, all);
           })
      .def("mark_dirty",
           [](DramTable& self, uint32_t table, In<int64_t> ids) {
             CheckTable(self, table);
             nb::gil_scoped_release release;
             self.MarkDirty(table, ids.data(), ids.size());
           })
      .def("copy_shard", &CopyShard)
      .def("num_rows",
           [](DramTable& self, uint32_t table) {
             CheckTable(self, table);
             return self.num_rows(table);
           })
      .def("hold_rows", [](DramTable& self, uint64_t n) { return self.arena().Reserve(n); })
      .def_prop_ro("rows_taken", [](DramTable& self) { return self.arena().rows_taken(); })
      .def_prop_ro("rows_left", [](DramTable& self) { return self.arena().rows_left(); })
      .def_prop_ro("max_rows", [](DramTable& self) { return self.options().max_rows; })
      .def_prop_ro("record_bytes", [](DramTable& self) { return self.options().record_bytes; })
      .def_prop_ro("base", [](DramTable& self) { return reinterpret_cast<uintptr_t>(self.arena().base()); })
      .def("memory",
           [](nb::handle_t<DramTable> self) {
             DramTable& table = nb::cast<DramTable&>(self);
             const size_t shape[2] = {table.options().max_rows, table.options().record_bytes};
             return nb::ndarray<nb::numpy, uint8_t>(reinterpret_cast<uint8_t*>(table.arena().base()), 2, shape, self);
           })
      .def_prop_ro("index_bytes", &DramTable::index_bytes)
      .def_prop_ro("bytes_used", &DramTable::bytes_used);
}

}  // namespace stepwell::bindings
