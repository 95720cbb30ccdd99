#include "stripe.h"

#include <sys/xattr.h>

#include <bit>
#include <cstring>
#include <vector>

#include "../store/segment.h"

namespace nvio {
namespace {

// What lov_user_md_v1 and lov_user_md_v3 begin with (lustre/include/uapi/linux/lustre/
// lustre_user.h); after it the name of a pool (v3) and the objects, which are of no use here.
struct LovHeader {
  std::uint32_t magic;
  std::uint32_t pattern;
  std::uint64_t object[2];
  std::uint32_t stripe_size;  // bytes
  std::uint16_t stripe_count;
  std::uint16_t generation;
};
static_assert(sizeof(LovHeader) == 32);
static_assert(std::endian::native == std::endian::little, "Lustre's layouts are little-endian");

constexpr std::uint32_t kLovV1 = 0x0BD10BD0;
constexpr std::uint32_t kLovV3 = 0x0BD30BD0;
constexpr std::size_t kPoolName = 16;           // bytes, in v3
constexpr std::uint32_t kPatternRaid0 = 0x001;  // over the servers that store data
constexpr std::uint32_t kPatternMdt = 0x100;    // at the metadata server
constexpr std::uint32_t kLeastStripe = 64 << 10;

std::optional<std::uint64_t> lustre_stripe(int fd) {
  constexpr char kName[] = "lustre.lov";
  const ssize_t length = fgetxattr(fd, kName, nullptr, 0);
  if (length <= 0) return std::nullopt;
  std::vector<std::byte> value(static_cast<std::size_t>(length));
  const ssize_t got = fgetxattr(fd, kName, value.data(), value.size());
  if (got < 0 || static_cast<std::size_t>(got) > value.size()) return std::nullopt;
  return parse_lov(std::span(value).first(static_cast<std::size_t>(got)));
}

}  // namespace

std::optional<std::uint64_t> parse_lov(std::span<const std::byte> attribute) {
  LovHeader header{};
  if (attribute.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, attribute.data(), sizeof header);
  const bool v3 = header.magic == kLovV3;
  if (header.magic != kLovV1 && !v3) return std::nullopt;
  if (v3 && attribute.size() < sizeof header + kPoolName) return std::nullopt;
  if ((header.pattern & kPatternRaid0) == 0 || (header.pattern & kPatternMdt) != 0) {
    return std::nullopt;
  }
  if (header.stripe_size == 0 || header.stripe_size % kLeastStripe != 0) return std::nullopt;
  return header.stripe_size;
}

std::uint64_t stripe_of(int fd, const struct stat& status, const FileSettings& settings) {
  if (settings.stripe != 0) return settings.stripe;
  if (const auto stripe = lustre_stripe(fd)) return *stripe;
  if (settings.striping_unit != 0) return settings.striping_unit;
  const auto preferred = static_cast<std::uint64_t>(status.st_blksize);
  return preferred > kGroupSize && preferred <= kMostStripe ? preferred : 0;
}

}  // namespace nvio
