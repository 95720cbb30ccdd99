"""Spack recipe: `spack repo add` a repository that holds this as packages/nvio/package.py."""

# ruff: noqa: F403, F405 - recipes get their vocabulary by this import
from spack.package import *


class Nvio(CMakePackage):
    """A cache in node-local memory under unmodified MPI-IO programs.

    Nothing is linked against it: programs preload lib/nvio/libnvio.so, which finds out by itself
    which MPI they use. The MPIs below are built against for their headers only.
    """

    git = "https://example.org/tare.git"  # your site's clone

    version("main", branch="main")

    variant("mpich", default=True, description="Serve programs of MPICH's ABI")
    variant("openmpi", default=True, description="Serve programs of Open MPI's ABI")
    variant("pmem", default=False, description="Stores on persistent memory")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("cli11", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("mpich", type="build", when="+mpich")
    depends_on("openmpi", type="build", when="+openmpi")
    depends_on("pmdk", when="+pmem")

    conflicts("~mpich~openmpi", msg="nvio needs the headers of one MPI at least")

    root_cmakelists_dir = "nvio"

    def cmake_args(self):
        """Point the build at each MPI's headers; tests want both launchers and stay out."""
        args = [self.define("BUILD_TESTING", False)]
        for name in ("mpich", "openmpi"):
            include = self.spec[name].prefix.include if f"+{name}" in self.spec else "OFF"
            args.append(self.define(f"NVIO_{name.upper()}_INCLUDE", include))
        return args

    def setup_run_environment(self, env):
        """Loading the package makes the command known; preloading is the user's choice."""
        env.prepend_path("PATH", self.prefix.bin)
