#include "packed_bytes.h"

#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace walks {
namespace {

using dnnl::memory;
using Kernel = dnnl::matmul::primitive_desc;

const dnnl::engine& processor() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory at(const memory::desc& layout, const void* data) {
  return {layout, processor(), const_cast<void*>(data)};
}

memory::desc left_of(std::int64_t rows, std::int64_t k, std::int64_t lda) {
  return {{rows, k}, memory::data_type::u8, memory::dims{lda, 1}};
}

memory::desc right_of(std::int64_t k, std::int64_t cols, memory::format_tag layout) {
  return {{k, cols}, memory::data_type::s8, layout};
}

memory::desc sums_of(std::int64_t rows, std::int64_t cols) {
  return {{rows, cols}, memory::data_type::s32, memory::format_tag::ab};
}

// One that is made within a parallel region runs on the thread that made it. None if oneDNN has no
// kernel of its own ("brgemm"): what else it has rounds sums beyond 2^24 to single precision.
std::optional<Kernel> kernel(const memory::desc& left, const memory::desc& right,
                             const memory::desc& sums) {
#if DNNL_VERSION_MAJOR >= 3
  const Kernel found(processor(), left, right, sums);
#else
  const Kernel found(dnnl::matmul::desc(left, right, sums), processor());
#endif
  const std::string_view name = found.impl_info_str();
  return name.starts_with("brg") ? std::optional(found) : std::nullopt;
}

// What lacks memory is told as everything else that does.
template <typename Action>
void asked(const Action& action) {
  try {
    action();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw std::runtime_error(std::string("oneDNN refused a product: ") + error.what());
  }
}

}  // namespace

void PackedBytes::take(const std::uint8_t* bytes, std::int64_t k, std::int64_t cols) {
  k_ = k;
  cols_ = cols;
  plain_ = bytes;
  layout_ = right_of(k, cols, memory::format_tag::ab);
  read_ = bytes;
}

void PackedBytes::pack(const std::uint8_t* bytes, std::int64_t k, std::int64_t cols,
                       std::int64_t rows, std::int64_t lda) {
  take(bytes, k, cols);
  asked([&] {
    const auto found = kernel(left_of(rows, k, lda), right_of(k, cols, memory::format_tag::any),
                              sums_of(rows, cols));
    if (!found) {
      layout_.reset();
      return;
    }
    const memory::desc packed = found->weights_desc();
    memory from = at(*layout_, bytes);
    memory to = at(packed, packed_.reserve(static_cast<std::int64_t>(packed.get_size())));
    layout_ = packed;
    read_ = packed_.data();
    dnnl::stream stream(processor());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
  });
}

void PackedBytes::multiply(std::int64_t rows, const std::uint8_t* a, std::int64_t lda,
                           std::int32_t* c) const {
  asked([&] {
    const memory::desc left = left_of(rows, k_, lda);
    const memory::desc sums = sums_of(rows, cols_);
    if (const auto found = layout_ ? kernel(left, *layout_, sums) : std::nullopt) {
      dnnl::stream stream(processor());
      dnnl::matmul(*found).execute(stream, {{DNNL_ARG_SRC, at(left, a)},
                                            {DNNL_ARG_WEIGHTS, at(*layout_, read_)},
                                            {DNNL_ARG_DST, at(sums, c)}});
      stream.wait();
      return;
    }
    const std::int32_t no_offset = 0;
    dnnl::error::wrap_c_api(dnnl_gemm_u8s8s32('N', 'N', 'F', rows, cols_, k_, 1.0F, a, lda, 0,
                                              reinterpret_cast<const std::int8_t*>(plain_), cols_,
                                              0, 0.0F, c, cols_, &no_offset),
                            "a product of bytes");
  });
}

}  // namespace walks
