// Asynchronous copies of the emulated kernels (cp.async). Sanitizers check them, unlike the
// switches between threads in kernel_threads.cc.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_ASYNCHRONOUS_COPY_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_ASYNCHRONOUS_COPY_H_

namespace triptych::emulation {

// A copy of 16 bytes, or of zeros if not `seen`.
struct Copy {
  void* to;
  const void* from;
  bool seen;
};
void Perform(const Copy& copy);

}  // namespace triptych::emulation

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_ASYNCHRONOUS_COPY_H_
