//! The command `pageshare`; what it can do stands in [`pageshare::cli`].

fn main() -> std::process::ExitCode {
    pageshare::cli::main()
}
