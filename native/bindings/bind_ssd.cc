#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/convert.h"
#include "io/env_faulty.h"
#include "ssd/ssd_log.h"

namespace stepwell::bindings {

namespace {

// Keeps what the log only borrows.
struct SsdHandle {
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<FaultyEnv> env;
  uint32_t record_bytes = 0;
  std::unique_ptr<SsdLog> log;

  SsdLog& open() {
    if (log == nullptr) throw StatusError(Status(Code::kClosed, "the SSD log was closed; open the store again"));
    return *log;
  }
};

std::unique_ptr<SsdHandle> OpenSsd(const std::string& directory, uint32_t record_bytes, uint32_t count_offset,
                                   uint64_t fingerprint, uint64_t budget_bytes, uint64_t segment_bytes,
                                   uint64_t write_buffer_bytes, bool background_compaction, bool create,
                                   const std::string& io, bool direct, uint32_t queue_depth,
                                   std::shared_ptr<ThreadPool> pool, std::shared_ptr<FaultyEnv> env) {
  SsdOptions options;
  options.directory = directory;
  options.record_bytes = record_bytes;
  options.count_offset = count_offset;
  options.step_offset = count_offset + 4;
  options.fingerprint = fingerprint;
  options.budget_bytes = budget_bytes;
  options.segment_bytes = segment_bytes;
  options.write_buffer_bytes = write_buffer_bytes;
  options.background_compaction = background_compaction;
  options.create = create;
  options.direct = direct;
  options.queue_depth = queue_depth;
  if (io == "auto") {
    options.io = IoKind::kAuto;
  } else if (io == "uring") {
    options.io = IoKind::kUring;
  } else if (io == "pread") {
    options.io = IoKind::kPread;
  } else {
    Check(Status(Code::kInvalid, "io is '" + io + "', expected auto, uring or pread"));
  }
  auto handle = std::make_unique<SsdHandle>();
  handle->pool = std::move(pool);
  handle->env = std::move(env);
  handle->record_bytes = record_bytes;
  options.pool = handle->pool.get();
  options.env = handle->env.get();
  Status status;
  {
    nb::gil_scoped_release release;
    status = SsdLog::Open(options, &handle->log);
  }
  Check(status);
  return handle;
}

// Runs a call without the GIL and checks what it returned.
template <class Call>
void Run(Call&& call) {
  Status status;
  {
    nb::gil_scoped_release release;
    status = call();
  }
  Check(status);
}

void Append(SsdHandle& self, uint32_t table, In<int64_t> ids, InRows records) {
  CheckSize(records.shape(0), ids.size(), "records");
  CheckSize(records.shape(1), self.record_bytes, "a record");
  SsdLog& log = self.open();
  Run([&] {
    return log.Append(table, ids.data(), reinterpret_cast<const std::byte*>(records.data()), records.shape(1),
                      ids.size());
  });
}

// Parts of ids one after another: part p is of tables[p] and has ids [starts[p], starts[p + 1]).
std::vector<IdsOf> PartsOf(const In<uint32_t>& tables, const In<int64_t>& starts, const In<int64_t>& ids) {
  CheckSize(starts.size(), tables.size() + 1, "starts");
  std::vector<IdsOf> parts;
  for (size_t p = 0; p < tables.size(); ++p) {
    const int64_t first = starts.data()[p], last = starts.data()[p + 1];
    if (first < 0 || last < first || (p == 0 && first != 0) || static_cast<size_t>(last) > ids.size()) {
      Check(Status(Code::kInvalid, "starts must begin with 0, never fall, and end with the number of ids"));
    }
    parts.push_back({tables.data()[p], ids.data() + first, static_cast<size_t>(last - first)});
  }
  CheckSize(ids.size(), static_cast<size_t>(starts.data()[tables.size()]), "ids");
  return parts;
}

// Returns the Status of unreadable rows as text (code name, message) instead of raising, so that good rows are not
// lost.
nb::object FindParts(SsdHandle& self, In<uint32_t> tables, In<int64_t> starts, In<int64_t> ids, OutRows out,
                     Out<uint8_t> found, Out<uint32_t> locations) {
  const std::vector<IdsOf> parts = PartsOf(tables, starts, ids);
  CheckSize(out.shape(0), ids.size(), "out");
  CheckSize(out.shape(1), self.record_bytes, "a row of out");
  CheckSize(found.size(), ids.size(), "found");
  CheckSize(locations.size(), ids.size(), "locations");
  SsdLog& log = self.open();
  Status status;
  {
    nb::gil_scoped_release release;
    status = log.Find(parts, reinterpret_cast<std::byte*>(out.data()), out.shape(1), found.data(), locations.data());
  }
  if (status.ok()) return nb::none();
  if (status.code() != Code::kCorrupt && status.code() != Code::kIoError) Check(status);
  return nb::cast(std::string(status.code() == Code::kCorrupt ? "corrupt: " : "io: ") + status.message());
}

void LocateParts(SsdHandle& self, In<uint32_t> tables, In<int64_t> starts, In<int64_t> ids,
                 Out<uint32_t> locations) {
  const std::vector<IdsOf> parts = PartsOf(tables, starts, ids);
  CheckSize(locations.size(), ids.size(), "locations");
  SsdLog& log = self.open();
  Run([&] {
    uint32_t* to = locations.data();
    for (const IdsOf& part : parts) {
      STEPWELL_RETURN_IF_ERROR(log.Locate(part.table, part.ids, part.n, to));
      to += part.n;
    }
    return Status::Ok();
  });
}

nb::object Scan(SsdHandle& self, int64_t table, nb::callable visit) {
  SsdLog& log = self.open();
  std::exception_ptr failed;
  const size_t record_bytes = self.record_bytes;
  Status status;
  {
    nb::gil_scoped_release release;
    status = log.Scan(table, [&](const ScanBatch& batch) {
      nb::gil_scoped_acquire acquire;
      try {
        std::vector<int64_t> ids(batch.ids, batch.ids + batch.n);
        const auto* bytes = reinterpret_cast<const uint8_t*>(batch.records);
        std::vector<uint8_t> records(bytes, bytes + batch.n * record_bytes);
        visit(batch.table, ToNumpy(std::move(ids), {batch.n}), ToNumpy(std::move(records), {batch.n, record_bytes}));
      } catch (...) {
        failed = std::current_exception();
        return Status(Code::kInvalid, "the visitor raised");
      }
      return Status::Ok();
    });
  }
  if (failed) std::rethrow_exception(failed);
  Check(status);
  return nb::none();
}

nb::dict Stats(SsdHandle& self) {
  const SsdStats stats = self.open().stats();
  nb::dict out;
  out["io"] = stats.io;
  out["direct"] = stats.direct;
#define STEPWELL_STAT(name) out[#name] = stats.name
  STEPWELL_STAT(segments);
  STEPWELL_STAT(live_records);
  STEPWELL_STAT(stale_records);
  STEPWELL_STAT(tombstone_records);
  STEPWELL_STAT(disk_bytes);
  STEPWELL_STAT(peak_disk_bytes);
  STEPWELL_STAT(live_bytes);
  STEPWELL_STAT(budget_bytes);
  STEPWELL_STAT(index_bytes);
  STEPWELL_STAT(buffer_bytes);
  STEPWELL_STAT(appended_seq);
  STEPWELL_STAT(synced_seq);
  STEPWELL_STAT(rows_read);
  STEPWELL_STAT(pages_read);
  STEPWELL_STAT(bytes_read);
  STEPWELL_STAT(reads);
  STEPWELL_STAT(reads_coalesced);
  STEPWELL_STAT(bytes_written);
  STEPWELL_STAT(write_stalls);
  STEPWELL_STAT(space_stalls);
  STEPWELL_STAT(compactions);
  STEPWELL_STAT(bytes_rewritten);
  STEPWELL_STAT(compaction_bytes_read);
  STEPWELL_STAT(implicit_syncs);
  STEPWELL_STAT(checksum_failures);
  STEPWELL_STAT(expired_dropped);
#undef STEPWELL_STAT
  nb::dict rows;
  for (const auto& [table, count] : stats.rows_per_table) rows[nb::cast(table)] = count;
  out["rows_per_table"] = rows;
  out["warnings"] = nb::cast(stats.warnings);
  return out;
}

nb::dict CheckDirectory(const std::string& directory, bool repair) {
  CheckReport report;
  Run([&] { return CheckDir(directory, repair, &report); });
  nb::dict out;
  out["segments"] = report.segments;
  out["records"] = report.records;
  out["live_rows"] = report.live_rows;
  out["tombstones"] = report.tombstones;
  out["record_bytes"] = report.record_bytes;
  out["fingerprint"] = report.fingerprint;
  out["synced_seq"] = report.synced_seq;
  out["lost_unnamed"] = report.lost_unnamed;
  out["repaired"] = report.repaired;
  nb::list problems;
  for (const CheckProblem& problem : report.problems) {
    problems.append(nb::make_tuple(problem.file, problem.offset, problem.what));
  }
  out["problems"] = problems;
  nb::list lost;
  for (const auto& [table, id] : report.lost) lost.append(nb::make_tuple(table, id));
  out["lost"] = lost;
  return out;
}

}  // namespace

void BindSsd(nb::module_& module) {
  nb::enum_<FaultOp>(module, "FaultOp")
      .value("OPEN", FaultOp::kOpen)
      .value("READ", FaultOp::kRead)
      .value("WRITE", FaultOp::kWrite)
      .value("SYNC", FaultOp::kSync)
      .value("ALLOCATE", FaultOp::kAllocate)
      .value("UNLINK", FaultOp::kUnlink)
      .value("LINK", FaultOp::kLink)
      .value("RENAME", FaultOp::kRename)
      .value("TRUNCATE", FaultOp::kTruncate);
  nb::class_<FaultyEnv>(module, "FaultyEnv")
      .def("__init__", [](FaultyEnv* self) { new (self) FaultyEnv(); })
      .def("add",
           [](FaultyEnv& self, FaultOp op, const std::string& path_contains, int error, uint64_t skip, uint64_t times) {
             return self.Add({op, path_contains, error, skip, times, 0});
           },
           nb::arg("op"), nb::arg("path_contains") = "", nb::arg("error") = 5, nb::arg("skip") = 0,
           nb::arg("times") = UINT64_MAX)
      .def("clear", &FaultyEnv::Clear)
      .def_prop_ro("num_failed", &FaultyEnv::num_failed);
  nb::class_<SsdHandle>(module, "SsdLog")
      .def(nb::new_(&OpenSsd), nb::arg("directory"), nb::arg("record_bytes"), nb::arg("count_offset"),
           nb::arg("fingerprint"), nb::arg("budget_bytes"), nb::arg("segment_bytes"), nb::arg("write_buffer_bytes"),
           nb::arg("background_compaction"), nb::arg("create"), nb::arg("io"), nb::arg("direct"),
           nb::arg("queue_depth"), nb::arg("pool"), nb::arg("env").none() = nb::none())
      .def("append", &Append)
      .def("find", &FindParts)
      .def("locate", &LocateParts)
      .def("erase",
           [](SsdHandle& self, uint32_t table, In<int64_t> ids, Out<uint8_t> erased) {
             CheckSize(erased.size(), ids.size(), "erased");
             SsdLog& log = self.open();
             Run([&] { return log.Erase(table, ids.data(), ids.size(), erased.data()); });
           })
      .def("set_expiry",
           [](SsdHandle& self, uint32_t table, const ExpiryRule& rule) {
             Check(self.open().SetExpiry(table, std::make_shared<const ExpiryRule>(rule)));
           })
      .def("drop_expired",
           [](SsdHandle& self, uint32_t table) {
             SsdLog& log = self.open();
             uint64_t dropped = 0;
             Run([&] { return log.DropExpired(table, &dropped); });
             return dropped;
           })
      .def("sync",
           [](SsdHandle& self) {
             SsdLog& log = self.open();
             Run([&] { return log.Sync(); });
           })
      .def("compact",
           [](SsdHandle& self, bool all) {
             SsdLog& log = self.open();
             Run([&] { return log.Compact(all); });
           })
      .def("link_to",
           [](SsdHandle& self, const std::string& target) {
             SsdLog& log = self.open();
             std::vector<std::string> files;
             Run([&] { return log.LinkTo(target, &files); });
             return files;
           })
      .def("scan", &Scan)
      .def("stats", &Stats)
      .def("close", [](SsdHandle& self) {
        if (self.log == nullptr) return;
        Run([&] { return self.log->Close(); });
        self.log.reset();
      });
  module.def("check_ssd_dir", &CheckDirectory, nb::arg("directory"), nb::arg("repair"));
  module.def("read_ssd_format", [](const std::string& directory) {
    SsdFormat format;
    Check(ReadFormat(directory, &format));
    nb::dict out;
    out["record_bytes"] = format.record_bytes;
    out["count_offset"] = format.count_offset;
    out["step_offset"] = format.step_offset;
    out["fingerprint"] = format.fingerprint;
    out["segment_bytes"] = format.segment_bytes;
    out["synced_seq"] = format.synced_seq;
    return out;
  });
}

}  // namespace stepwell::bindings
