// CachedFile::each_group and each_slot, for the two files that walk over all of a file.
#pragma once

#include <algorithm>
#include <vector>

#include "cached_file.h"

namespace nvio {

template <typename Visit>
int CachedFile::each_group(bool share, Visit&& visit) {
  std::vector<std::uint64_t> indices;
  for (std::uint32_t i = 0; i < segment_.used_groups(); ++i) {
    const Group& group = segment_.group(i);
    if (group.file == index_) indices.push_back(group.index);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());

  int first_error = 0;
  const auto visit_locked = [&](Bucket& bucket, std::uint64_t index) {
    const std::uint32_t group = segment_.find_group(bucket, index_, index);
    const int error = group == kNone ? 0 : visit(bucket, group);
    bucket.lock.unlock();
    if (first_error == 0) first_error = error;
  };
  std::vector<std::uint64_t> busy;
  for (const std::uint64_t index : indices) {
    Bucket& bucket = segment_.bucket_of(index_, index);
    if (!share) {
      bucket.lock.lock();
    } else if (!bucket.lock.try_lock()) {
      busy.push_back(index);
      continue;
    }
    visit_locked(bucket, index);
  }
  for (const std::uint64_t index : busy) {
    Bucket& bucket = segment_.bucket_of(index_, index);
    bucket.lock.lock();
    visit_locked(bucket, index);
  }
  return first_error;
}

template <typename Visit>
void CachedFile::each_slot(Visit&& visit) {
  each_group(false, [&](Bucket&, std::uint32_t group) {
    for (const std::uint32_t slot : segment_.group(group).slot) {
      if (slot != kNone) visit(slot);
    }
    return 0;
  });
}

}  // namespace nvio
