// MarkerFile: the SYNCED file, two slots of a page that are written in turn. It says up to which seq everything is on
// disk; a log that is opened again holds exactly that.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "ssd/format.h"

namespace stepwell::ssd {

class MarkerFile {
 public:
  // Creates the file with this content, synced (the directory too).
  Status Create(Env* env, const std::string& directory, bool direct, const Marker& marker);
  // kCorrupt if neither slot is good; *damaged_slot names one that is not.
  Status Open(Env* env, const std::string& directory, bool direct, std::string* damaged_slot);

  // Writes the content with the next generation into the slot that does not hold the last, and syncs it. After an
  // error the file still holds the last content.
  Status Write(Marker marker);
  Marker current() {
    std::lock_guard<std::mutex> lock(mutex_);
    return current_;
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<File> file_;
  Marker current_{};  // guarded by mutex_
};

}  // namespace stepwell::ssd
