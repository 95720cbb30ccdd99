package sample;
import org.openjdk.jmh.annotations.*;
import java.util.concurrent.TimeUnit;
@State(Scope.Benchmark)
public class Sums {
  @Param({"100", "1000"}) public int n;
  @Benchmark @BenchmarkMode(Mode.AverageTime) @OutputTimeUnit(TimeUnit.MICROSECONDS)
  public double average() { double s = 0; for (int i = 1; i < n; i++) s += 1.0 / i; return s; }
  @Benchmark @BenchmarkMode(Mode.Throughput) @OutputTimeUnit(TimeUnit.SECONDS)
  public double throughput() { double s = 0; for (int i = 1; i < n; i++) s += 1.0 / i; return s; }
  @Benchmark @BenchmarkMode(Mode.SampleTime) @OutputTimeUnit(TimeUnit.NANOSECONDS)
  public double sampled() { double s = 0; for (int i = 1; i < n; i++) s += 1.0 / i; return s; }
}
