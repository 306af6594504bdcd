# An independent implementation of what stillme.estimates computes: base R, and Debian's r-cran-* packages.
# Called by crosscheck.py with the folder of the data; writes one line `name value` for each number.
folder <- commandArgs(trailingOnly = TRUE)[1]
say <- function(name, value) cat(sprintf("%s %.15g\n", name, value))
rows <- read.csv(file.path(folder, "rows.csv"), stringsAsFactors = TRUE)

# -- tests on rows
say("kruskal_statistic", unname(kruskal.test(score ~ race, data = rows)$statistic))
say("kruskal_p", kruskal.test(score ~ race, data = rows)$p.value)
a <- rows$score[rows$race == "A"]; rest <- rows$score[rows$race != "A"]
say("mannwhitney_statistic", unname(wilcox.test(a, rest, exact = FALSE, correct = TRUE)$statistic))
say("mannwhitney_p", wilcox.test(a, rest, exact = FALSE, correct = TRUE)$p.value)
pairs <- read.csv(file.path(folder, "pairs.csv"))
signed <- suppressWarnings(wilcox.test(pairs$after - pairs$before, exact = FALSE, correct = FALSE))
say("wilcoxon_p", signed$p.value)

# -- agreement: base R, from the definitions
ratings <- as.matrix(read.csv(file.path(folder, "ratings.csv")))
values <- sort(unique(as.vector(ratings[!is.na(ratings)])))
counts <- t(apply(ratings, 1, function(row) table(factor(row, levels = values))))
n <- rowSums(counts)
share <- colSums(counts) / sum(counts)
observed <- mean((rowSums(counts^2) - n) / (n * (n - 1)))
say("fleiss_kappa", (observed - sum(share^2)) / (1 - sum(share^2)))
alpha <- function(distance) {
  coincidences <- matrix(0, length(values), length(values))
  for (row in seq_len(nrow(counts))) {
    k <- counts[row, ]; m <- sum(k)
    if (m > 1) coincidences <- coincidences + (outer(k, k) - diag(k)) / (m - 1)
  }
  total <- rowSums(coincidences); size <- sum(total)
  1 - (size - 1) * sum(coincidences * distance) / sum(outer(total, total) * distance)
}
say("alpha_nominal", alpha(1 - diag(length(values))))
say("alpha_interval", alpha(outer(values, values, "-")^2))
total <- colSums(counts)
rank_distance <- outer(seq_along(values), seq_along(values), Vectorize(function(i, j) {
  span <- min(i, j):max(i, j); (sum(total[span]) - (total[i] + total[j]) / 2)^2
}))
say("alpha_ordinal", alpha(rank_distance))

# -- intraclass correlation
between <- anova(lm(score ~ portrait, data = rows))
k <- length(rows$score) / nlevels(rows$portrait)
msb <- between[["Mean Sq"]][1]; msw <- between[["Mean Sq"]][2]
say("icc_anova", (msb - msw) / (msb + (k - 1) * msw))
if (requireNamespace("psych", quietly = TRUE)) {
  wide <- do.call(rbind, split(rows$score, rows$portrait))
  say("icc_psych", psych::ICC(wide, lmer = FALSE)$results[1, "ICC"])
  weights <- psych::cohen.kappa(ratings[, 1:2], n.obs = nrow(ratings))
  say("kappa_psych", weights$kappa)
  say("kappa_quadratic_psych", weights$weighted.kappa)
}

# -- portraits as units
means <- aggregate(score ~ portrait + race, data = rows, FUN = mean)
six <- means[means$race == "A", "score"][1:6]
say("t_low", t.test(six)$conf.int[1]); say("t_high", t.test(six)$conf.int[2])
one <- means$score[means$race == "A"]; other <- means$score[means$race == "B"]
small <- t.test(one[1:6], other[1:6])
say("welch_low", small$conf.int[1]); say("welch_high", small$conf.int[2])
tost <- t.test(one[1:6], other[1:6], conf.level = 0.90)
say("tost_low", tost$conf.int[1]); say("tost_high", tost$conf.int[2])
if (requireNamespace("coin", quietly = TRUE)) {
  two <- droplevels(means[means$race %in% c("A", "B"), ])
  say("permutation_p", as.numeric(coin::pvalue(coin::oneway_test(score ~ race, data = two, distribution = "exact"))))
}
if (requireNamespace("boot", quietly = TRUE)) {
  set.seed(1)
  studentised <- boot::boot(one, function(x, i) c(mean(x[i]), var(x[i]) / length(i)), R = 20000)
  limits <- boot::boot.ci(studentised, type = "stud")$student[4:5]
  say("boot_t_low", limits[1]); say("boot_t_high", limits[2])
}

# -- a mixed ordinal model
if (requireNamespace("ordinal", quietly = TRUE)) {
  rows$ordered <- factor(rows$score, ordered = TRUE)
  fit <- ordinal::clmm(ordered ~ race + (1 | portrait), data = rows, nAGQ = 15)
  table <- coef(summary(fit))
  for (level in c("B", "C")) {
    say(paste0("clmm_", level), table[paste0("race", level), "Estimate"])
    say(paste0("clmm_se_", level), table[paste0("race", level), "Std. Error"])
  }
  say("clmm_sd", sqrt(unlist(ordinal::VarCorr(fit))[1]))
}
