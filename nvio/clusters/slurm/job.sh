#!/bin/sh
#SBATCH --nodes=1
#SBATCH --ntasks=32
#SBATCH --signal=TERM@60
# A job that uses nvio by its environment alone. Slurm sends SIGTERM a minute before the limit, so
# that what is cached is written back in time.
export LD_PRELOAD="${NVIO_PREFIX:-/usr}/lib/nvio/libnvio.so"
export NVIO_STATS=job # each process tells at its end, in a line, what was cached

srun ./app /lustre/project/data

# The same under an MPI's own launcher; `nvio run` also writes back what a killed job leaves:
#   nvio run --stats -- mpirun -n 32 ./app /lustre/project/data
# Open MPI and MPICH hand the environment on to ranks of this node by themselves.
