#!/bin/sh
#SBATCH --nodes=1
#SBATCH --ntasks=32
#SBATCH --signal=TERM@60
# A job on one node that uses nvio without the site's TaskProlog. Slurm sends SIGTERM a minute before
# the limit, so that what is cached is written back in time; `nvio run` writes back what a killed
# step leaves. `srun` or, in its place, an MPI's own launcher: mpirun -n 32.
PATH="${NVIO_PREFIX:-/usr}/bin:$PATH"
nvio run --stats -- srun ./app /lustre/project/data
