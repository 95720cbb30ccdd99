// Rebuilding files from what a job left in its store.
#pragma once
