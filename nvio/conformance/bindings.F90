! One program for the three Fortran bindings of MPI-IO: compiled with -DBINDING_MPIF_H, -DBINDING_MPI
! or -DBINDING_MPI_F08. Writes a file by explicit offsets, the individual pointer, a view, a
! collective call and the shared pointer, reads it back, and ends with status 1 on a difference.
!
!   bindings FILE
program bindings
#if defined(BINDING_MPI_F08)
  use mpi_f08
#elif defined(BINDING_MPI)
  use mpi
#endif
  implicit none
#if defined(BINDING_MPIF_H)
  include 'mpif.h'
#endif
#if defined(BINDING_MPI_F08)
  type(MPI_File) :: file
  type(MPI_Status) :: status
  type(MPI_Datatype) :: every
#else
  integer :: file, status(MPI_STATUS_SIZE), every
#endif
  integer, parameter :: n = 256
  integer :: rank, ranks, i, error, got, wrong, allwrong
  integer :: values(n), back(n)
  integer(kind=MPI_OFFSET_KIND) :: at, region, size
  character(len=1024) :: path

  call get_command_argument(1, path)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  wrong = 0
  region = int(ranks, MPI_OFFSET_KIND) * n * 4
  call MPI_File_open(MPI_COMM_WORLD, trim(path), MPI_MODE_RDWR + MPI_MODE_CREATE, MPI_INFO_NULL, &
                     file, error)
  if (error /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 2, error)

  ! Region 0: single integers at explicit offsets, interleaved between ranks.
  do i = 1, n
    values(i) = 1000000 * rank + i
    at = int((i - 1) * ranks + rank, MPI_OFFSET_KIND) * 4
    call MPI_File_write_at(file, at, values(i), 1, MPI_INTEGER, status, error)
  end do
  ! Region 1: the individual pointer, a run a rank.
  call MPI_File_seek(file, region + int(rank, MPI_OFFSET_KIND) * n * 4, MPI_SEEK_SET, error)
  do i = 1, n, 16
    call MPI_File_write(file, values(i), 16, MPI_INTEGER, status, error)
    call MPI_Get_count(status, MPI_INTEGER, got, error)
    if (got /= 16) wrong = wrong + 1
  end do
  ! Region 2: through a view of every ranks-th integer, collectively.
  call MPI_Type_vector(n, 1, ranks, MPI_INTEGER, every, error)
  call MPI_Type_commit(every, error)
  call MPI_File_set_view(file, 2 * region + int(rank, MPI_OFFSET_KIND) * 4, MPI_INTEGER, every, &
                         'native', MPI_INFO_NULL, error)
  call MPI_File_write_all(file, values, n, MPI_INTEGER, status, error)
  call MPI_Type_free(every, error)
  ! Region 3: the shared pointer, in rank order.
  call MPI_File_set_view(file, 3 * region, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, error)
  call MPI_File_write_ordered(file, values, n, MPI_INTEGER, status, error)

  call MPI_File_sync(file, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_BYTE, MPI_BYTE, 'native', MPI_INFO_NULL, error)
  call MPI_File_get_size(file, size, error)
  if (size /= 4 * region) wrong = wrong + 1
  ! What the next rank wrote, in every region.
  do i = 1, n
    at = int((i - 1) * ranks + mod(rank + 1, ranks), MPI_OFFSET_KIND) * 4
    call MPI_File_read_at(file, at, back(i), 1, MPI_INTEGER, status, error)
    if (back(i) /= 1000000 * mod(rank + 1, ranks) + i) wrong = wrong + 1
    call MPI_File_read_at(file, 2 * region + at, back(i), 1, MPI_INTEGER, status, error)
    if (back(i) /= 1000000 * mod(rank + 1, ranks) + i) wrong = wrong + 1
  end do
  at = int(mod(rank + 1, ranks), MPI_OFFSET_KIND) * n * 4
  call MPI_File_read_at(file, region + at, back, n, MPI_INTEGER, status, error)
  do i = 1, n
    if (back(i) /= 1000000 * mod(rank + 1, ranks) + i) wrong = wrong + 1
  end do
  call MPI_File_read_at_all(file, 3 * region + at, back, n, MPI_INTEGER, status, error)
  do i = 1, n
    if (back(i) /= 1000000 * mod(rank + 1, ranks) + i) wrong = wrong + 1
  end do
  call MPI_File_close(file, error)
  if (error /= MPI_SUCCESS) wrong = wrong + 1
  call MPI_Allreduce(wrong, allwrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (rank == 0) print '(a,i0,a)', 'bindings: ', allwrong, ' differences'
  call MPI_Finalize(error)
  if (allwrong /= 0) stop 1
end program bindings
