#include "text/tsv.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "text/hex_digits.h"

namespace stepwell {

namespace {

constexpr size_t kChunk = size_t{1} << 18;  // bytes whose lines one task decodes

const uint8_t* FindByte(const uint8_t* begin, const uint8_t* end, char byte) {
  const void* found = begin < end ? std::memchr(begin, byte, static_cast<size_t>(end - begin)) : nullptr;
  return found != nullptr ? static_cast<const uint8_t*>(found) : end;
}

size_t CountNewlines(const uint8_t* begin, const uint8_t* end) {
  return static_cast<size_t>(std::count(begin, end, static_cast<uint8_t>('\n')));
}

// Whether the bytes are a decimal integer that fits. REQUIRES size >= 1.
inline bool ReadDecimal(const uint8_t* at, size_t size, int64_t* value) {
  const bool negative = *at == '-';
  at += negative;
  size -= negative;
  if (size == 0 || size > 19) return false;  // 19 digits fit 64 bits without sign
  uint64_t magnitude = 0;
  for (size_t i = 0; i < size; ++i) {
    const unsigned digit = static_cast<unsigned>(at[i]) - '0';
    if (digit > 9) return false;
    magnitude = magnitude * 10 + digit;
  }
  if (magnitude > static_cast<uint64_t>(INT64_MAX) + negative) return false;
  *value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return true;
}

void Clear(const std::vector<TsvField>& fields, size_t row) {
  for (const TsvField& field : fields) {
    if (field.kind == TsvKind::kSkip) continue;
    field.values[row] = 0;
    field.valid[row] = 0;
  }
}

// One line without its end.
int16_t DecodeLine(const uint8_t* at, const uint8_t* end, const std::vector<TsvField>& fields, size_t row) {
  const size_t num_fields = fields.size();
  int16_t bad = 0;
  for (size_t f = 0; f < num_fields; ++f) {
    const TsvField& field = fields[f];
    const uint8_t* tab = at;
    uint64_t hex = 0;
    int64_t value = 0;
    bool ok = true;
    // Ids of eight digits are the rule: they are read before their end is looked for.
    if (field.kind == TsvKind::kHex && end - at >= 8 && (end - at == 8 || at[8] == '\t') && ReadHex(at, 8, &hex)) {
      tab = at + 8;
      value = static_cast<int64_t>(hex);
    } else {
      while (tab != end && *tab != '\t') ++tab;
      const size_t size = static_cast<size_t>(tab - at);
      if (size > 0 && field.kind == TsvKind::kDecimal) {
        ok = ReadDecimal(at, size, &value);
      } else if (size > 0 && field.kind == TsvKind::kHex) {
        ok = size <= 16 && ReadHex(at, size, &hex);
        value = static_cast<int64_t>(hex);
      }
    }
    if (!ok && bad == 0) bad = static_cast<int16_t>(f + 1);
    if (field.kind != TsvKind::kSkip) {
      field.values[row] = value;
      field.valid[row] = tab != at;
    }
    if ((tab == end) != (f + 1 == num_fields)) {
      Clear(fields, row);
      return kWrongNumberOfFields;
    }
    at = tab + 1;
  }
  if (bad != 0) Clear(fields, row);
  return bad;
}

}  // namespace

size_t CountLines(const uint8_t* data, size_t size) {
  return CountNewlines(data, data + size) + (size > 0 && data[size - 1] != '\n');
}

size_t DecodeTsv(const uint8_t* data, size_t size, const std::vector<TsvField>& fields, int16_t* bad,
                 ThreadPool* pool) {
  const size_t num_chunks = (size + kChunk - 1) / kChunk;
  const uint8_t* const end = data + size;
  const auto begin_of = [&](size_t chunk) { return data + std::min(chunk * kChunk, size); };
  const auto run = [&](const std::function<void(size_t)>& task) {
    if (pool != nullptr) {
      pool->Run(num_chunks, task);
    } else {
      for (size_t chunk = 0; chunk < num_chunks; ++chunk) task(chunk);
    }
  };
  std::vector<size_t> rows(num_chunks + 1);  // newlines before each chunk
  run([&](size_t chunk) { rows[chunk + 1] = CountNewlines(begin_of(chunk), begin_of(chunk + 1)); });
  for (size_t chunk = 0; chunk < num_chunks; ++chunk) rows[chunk + 1] += rows[chunk];
  std::atomic<size_t> num_bad{0};
  run([&](size_t chunk) {  // the lines that begin in it
    const uint8_t* at = begin_of(chunk);
    size_t row = rows[chunk];
    if (chunk > 0 && at[-1] != '\n') {
      at = FindByte(at, end, '\n') + 1;
      ++row;
    }
    size_t found = 0;
    for (const uint8_t* const stop = begin_of(chunk + 1); at < stop; ++row) {
      const uint8_t* const newline = FindByte(at, end, '\n');
      const bool carriage = newline > at && newline[-1] == '\r';
      bad[row] = DecodeLine(at, newline - carriage, fields, row);
      found += bad[row] != 0;
      at = newline + 1;
    }
    num_bad.fetch_add(found, std::memory_order_relaxed);
  });
  return num_bad.load();
}

}  // namespace stepwell
