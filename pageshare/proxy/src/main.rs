//! The command `pageshare`; what it can do stands in [`pageshare::cli`].

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    pageshare::cli::main()
}
