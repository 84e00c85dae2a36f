# Spack recipe: copy into a repository of yours as packages/atoll/package.py and set git or url.
from spack.package import *


class Atoll(CMakePackage):
    """Trains transformer language models on the mixed machines a Slurm cluster really has."""

    license("BSD-3-Clause")
    version("main", branch="main")

    variant("cuda", default=False, description="CUDA plug-in")
    variant("nccl", default=False, description="NCCL windows in the CUDA plug-in", when="+cuda")
    variant("papi", default=True, description="PAPI hardware counters")
    variant("cbc", default=True, description="integer programs of the planner")
    variant("libxsmm", default=True, description="tiles for products by libxsmm")

    depends_on("c", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi@3.1:")
    depends_on("hdf5@1.10: +mpi")
    depends_on("hwloc@2.4:")
    depends_on("onednn")
    depends_on("openblas threads=openmp")
    depends_on("libyaml")
    depends_on("xxhash@0.8:")
    depends_on("jansson")
    depends_on("pcre2@10.32:")
    depends_on("isl@0.24:")
    depends_on("gnuplot", type="run")
    depends_on("papi", when="+papi")
    depends_on("cbc", when="+cbc")
    depends_on("libxsmm", when="+libxsmm")
    depends_on("cuda", when="+cuda")
    depends_on("nccl", when="+nccl")
    depends_on("nccl@2.28:", when="+nccl")

    def cmake_args(self):
        on = lambda variant: "ON" if self.spec.satisfies("+" + variant) else "OFF"
        return [self.define("ATOLL_" + v.upper(), on(v)) for v in ("cuda", "nccl", "papi", "cbc", "libxsmm")] + [
            self.define("ATOLL_TESTS", False)
        ]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def smoke_test(self):
        Executable(self.prefix.bin.join("atoll-topo"))()
