//! A host of the model.

/// Threads that share processors evenly.
pub struct Host {
    pub processors: f64,
    pub busy: usize,
    /// Seconds of work left, by thread.
    pub work: Vec<Option<f64>>,
    pub used: f64,
}

impl Host {
    pub fn rate(&self) -> f64 {
        let running = self.work.iter().flatten().count() + self.busy;
        (self.processors / running.max(1) as f64).min(1.0)
    }

    /// Until the next thread is done.
    pub fn next(&self) -> f64 {
        let least = self.work.iter().flatten().fold(f64::INFINITY, |least, it| least.min(*it));
        least / self.rate()
    }

    /// Lets time pass; the threads that are done then.
    pub fn pass(&mut self, seconds: f64) -> Vec<usize> {
        let each = seconds * self.rate();
        let mut done = Vec::new();
        for (thread, work) in self.work.iter_mut().enumerate() {
            if let Some(left) = work {
                self.used += each;
                *left -= each;
                if *left <= 1e-12 {
                    *work = None;
                    done.push(thread);
                }
            }
        }
        done
    }
}
